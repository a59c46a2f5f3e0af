"""How a request becomes a generation: prepared, queued, and opened in the log.

The task is sent first and `requested` second, so that no log is ever without its task. From the
moment the log is open, or the task is in the queue, some terminal event comes: the engine's, or ours.
"""

import asyncio
import logging
import time
from dataclasses import dataclass, field

import orjson

from schemas import ids
from schemas.errors import RequestError
from schemas.events import Requested
from schemas.generation import Generation
from schemas.rpc import Prepare, Prepared
from schemas.tasks import ConversationEntry, Task
from services.bus.connection import Bus
from services.bus.errors import BusError, BusUnavailable, Fenced, LogClosed, MessageTooLarge
from services.bus.log import LogWriter
from services.bus.store import StoreGauge
from services.bus.tasks import publish_task
from services.edge.access import Access
from services.gateway import errors
from services.gateway.cancellation import LogEnder
from services.gateway.config import GatewaySettings
from services.gateway.dialects.fields import JsonObject, NativeRequest
from services.gateway.engines import Engines
from services.gateway.limits.limiter import Limiter
from services.gateway.limits.verdict import cost_of
from services.gateway.models import ServedModel
from services.streams.conversations import Conversations
from services.streams.hub import Hub
from services.streams.tape import Tape

log = logging.getLogger(__name__)

EMPTY = Generation()


@dataclass(frozen=True, kw_only=True)
class Ask:
    """One client's request. dialect: how the answer is rendered. body: as the client sent it.

    caller: key id. conversation: id under which the answer can be found again, if any. access: what
    the caller may; it is told of the limits that apply.
    """

    dialect: str
    body: JsonObject
    native: NativeRequest
    caller: str
    conversation: str | None
    access: Access = field(default_factory=Access)


@dataclass(frozen=True, kw_only=True)
class Admission:
    """Admits requests. Keeps no state between them."""

    bus: Bus
    writer: LogWriter
    hub: Hub
    engines: Engines
    model: ServedModel
    conversations: Conversations
    ender: LogEnder
    limiter: Limiter
    settings: GatewaySettings

    async def admit(self, ask: Ask) -> Tape:
        """The tape of a new generation; the caller releases it.

        Raises RequestError for what an engine or the key's limits refuse or the log cannot keep, and
        BusError (503) while there is no broker or no engine; the generation is then ended, or will
        be by an engine that finds its task without a log.
        """
        if await self.bus.part(StoreGauge).is_nearly_full():
            raise RequestError(errors.store_full())
        await self.limiter.check(ask.access, ask.dialect)
        created_at_ms = time.time_ns() // 1_000_000
        prepared = await self._prepare(ask.native, created_at_ms)
        generation_id = ids.new_generation_id()
        replaces = await self._current(ask)
        requested = self._requested(ask, prepared, generation_id, created_at_ms, replaces)
        ticket = await self.limiter.take(ask.access, ask.dialect, cost_of(prepared), requested)
        try:
            tape = await self._begin(ask, requested, prepared.n_slots)
        except BaseException:
            self.limiter.give_back(ticket)
            raise
        self.limiter.hold(ticket, tape)
        return tape

    async def _begin(self, ask: Ask, requested: Requested, n_slots: int) -> Tape:
        tape = await self.hub.open(requested.generation_id, is_new=True, requested=requested)
        try:
            await self._open_log(requested, n_slots, await self._ordinal(ask.native))
            await self._show(requested)
        except BaseException:
            tape.release()
            raise
        return tape

    async def _prepare(self, native: NativeRequest, created_at_ms: int) -> Prepared:
        body = orjson.dumps(native.body)
        question = Prepare(kind=native.kind, body=body, created_at_ms=created_at_ms)
        return await self.engines.ask(question, Prepared, n_bytes=len(body))

    async def _ordinal(self, native: NativeRequest) -> int | None:
        """The engine that must do it, because of the slot that is asked for; None for any."""
        slot = native.body.get("id_slot")
        if not isinstance(slot, int) or slot < 0:
            return None
        return await self.engines.ordinal_of(slot, self.model.loaded().n_slots)

    def _requested(
        self,
        ask: Ask,
        prepared: Prepared,
        generation_id: str,
        created_at_ms: int,
        replaces: str | None,
    ) -> Requested:
        return Requested(
            generation_id=generation_id,
            dialect=ask.dialect,
            request=orjson.dumps(ask.body, option=orjson.OPT_SORT_KEYS),
            prompts=prepared.prompts,
            params=prepared.params,
            output_format=prepared.output_format,
            model_key=self.settings.model_key,
            model=self.settings.model_name,
            fingerprint=self.model.loaded().build,
            conversation=ask.conversation,
            replaces=replaces,
            caller=ask.caller,
            content=ask.access.content or self.settings.record_content,
            created_at_ms=created_at_ms,
            deadline_at_ms=created_at_ms + round(self.settings.deadline_s * 1000),
        )

    async def _open_log(self, requested: Requested, n_slots: int, ordinal: int | None) -> None:
        generation_id = requested.generation_id
        task = Task(
            generation_id=generation_id,
            n_slots=n_slots,
            priority=requested.priority,
            created_at_ms=requested.created_at_ms,
            deadline_at_ms=requested.deadline_at_ms,
        )
        # One connection keeps their order, so the second need not wait for the first one's answer.
        publishing = publish_task(self.bus, self.settings.model_key, task, ordinal)
        queueing = asyncio.ensure_future(publishing)
        await asyncio.sleep(0)
        try:
            await self._append(requested)
        finally:
            await self._settle(queueing, generation_id)

    async def _settle(self, queueing: "asyncio.Future[None]", generation_id: str) -> None:
        """A log whose task was refused must not stay open."""
        try:
            await queueing
        except BusError:
            self.hub.spawn(self._abandon(generation_id))
            raise

    async def _append(self, requested: Requested) -> None:
        generation_id = requested.generation_id
        try:
            await self.writer.append(EMPTY, generation_id, requested)
        except (Fenced, LogClosed):
            # An engine waited too long for us and closed the log: that is the answer now.
            log.warning("action=admitted_too_late generation=%s", generation_id)
        except MessageTooLarge as error:
            await self.ender.fail(generation_id, errors.too_large_to_keep())
            raise RequestError(errors.too_large_to_keep()) from error
        except BusUnavailable:
            # It may be stored all the same; nobody will read that answer.
            self.hub.spawn(self._abandon(generation_id))
            raise

    async def _current(self, ask: Ask) -> str | None:
        """The generation that the conversation shows now and that this one is to displace."""
        if ask.conversation is None:
            return None
        entry = await self.conversations.find(ask.caller, ask.conversation)
        return None if entry is None else entry.generation_id

    async def _show(self, requested: Requested) -> None:
        """Let the conversation show the new generation, and cancel what it showed until now.

        Of two requests at once the later swap wins and cancels the other's generation.
        """
        if requested.conversation is None:
            return
        entry = ConversationEntry(
            conversation_id=requested.conversation,
            generation_id=requested.generation_id,
            dialect=requested.dialect,
            render=requested.render,
            started_at_s=requested.created_at_ms // 1000,
        )
        try:
            old = await self.conversations.swap(requested.caller, requested.conversation, entry)
        except BusError:
            self.hub.spawn(self._abandon(requested.generation_id))
            raise
        if old is not None and not old.is_done:
            self.hub.spawn(self._abandon(old.generation_id, "replaced"))

    async def _abandon(self, generation_id: str, reason: str = "client_gone") -> None:
        await self.ender.cancel(generation_id, reason)
