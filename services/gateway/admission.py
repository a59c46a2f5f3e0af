"""How a request becomes a generation: let in, prepared, named, and opened in the log."""

import time
from collections import Counter
from dataclasses import dataclass, field

import orjson

from schemas import ids
from schemas.errors import UNAVAILABLE, RequestError
from schemas.events import Requested
from schemas.lanes import INTERACTIVE_CLASS
from schemas.rpc import Prepare, Prepared
from services.bus.backlog import Backlog
from services.bus.connection import Bus
from services.bus.errors import BusError
from services.bus.store import StoreGauge
from services.bus.tasks import poke
from services.edge.access import Access
from services.gateway import errors
from services.gateway.asking import Idempotency
from services.gateway.config import GatewaySettings
from services.gateway.crowd import Crowd
from services.gateway.dialects.fields import JsonObject, NativeRequest
from services.gateway.engines import Engines
from services.gateway.idempotency import Conflicts, Found, IdempotencyKeys
from services.gateway.limits.limiter import Limiter
from services.gateway.limits.verdict import cost_of
from services.gateway.loads import CallerLoads, Load
from services.gateway.models import ServedModel
from services.gateway.opening import Opener, Place
from services.streams.conversations import Conversations
from services.streams.hub import Hub
from services.streams.tape import Tape

REPLAYED_HEADER = "idempotent-replayed"


@dataclass(frozen=True, kw_only=True)
class Ask:
    """One client's request. dialect: how the answer is rendered. body: as the client sent it.

    caller: key id. conversation: id under which the answer can be found again, if any. access: what
    the caller may; it is told of the limits that apply. priority: its class, see schemas.lanes.
    idempotency: under which key it may be asked again, if any.
    """

    dialect: str
    body: JsonObject
    native: NativeRequest
    caller: str
    conversation: str | None
    access: Access = field(default_factory=Access)
    priority: str = INTERACTIVE_CLASS
    idempotency: Idempotency | None = None


@dataclass(frozen=True, kw_only=True)
class Admission:
    """Admits requests. Keeps no state between them. refused: how many were not, by error code."""

    bus: Bus
    hub: Hub
    engines: Engines
    model: ServedModel
    conversations: Conversations
    opener: Opener
    limiter: Limiter
    idempotency: IdempotencyKeys
    backlog: Backlog
    loads: CallerLoads
    settings: GatewaySettings
    crowd: Crowd = field(default_factory=Crowd)
    refused: Counter[str] = field(default_factory=Counter[str])

    async def admit(self, ask: Ask) -> Tape:
        """The tape of the generation that answers `ask`, a new one unless its idempotency key stands
        for one already; the caller releases it.

        Raises RequestError for what an engine, the key's limits or a full queue refuse, for what the
        log cannot keep and for an idempotency key that stands for something else; BusError (503)
        while there is no broker or no engine; the generation is then ended, or will be by an engine
        that finds its task without a log.
        """
        try:
            return await self._admit_once(ask)
        except RequestError as error:
            self.refused[error.problem.code] += 1
            raise
        except BusError:
            self.refused[UNAVAILABLE] += 1
            raise

    async def _admit_once(self, ask: Ask) -> Tape:
        asked = ask.idempotency
        if asked is None:
            tape = await self._admit(ask, None)
            assert tape is not None, "nobody else knows its id"
            return tape
        conflicts = Conflicts()
        while True:
            found = await self.idempotency.find(ask.caller, asked)
            if found.generation_id is not None and found.is_open:
                ask.access.headers[REPLAYED_HEADER] = "true"
                return await self.hub.open(found.generation_id)
            tape = await self._admit(ask, found)
            if tape is not None:
                return tape
            await conflicts.again()

    async def _admit(self, ask: Ask, found: Found | None) -> Tape | None:
        """A new generation. found: what its idempotency key stands for, if it has one; None is
        returned where somebody else was faster under that key."""
        if await self.bus.part(StoreGauge).is_nearly_full():
            raise RequestError(errors.store_full())
        await self.limiter.check(ask.access, ask.dialect)
        load = self.loads.enter(ask.caller, ask.priority)
        try:
            tape = await self._queue(ask, found, load)
        except BaseException:
            self.loads.leave(load)
            raise
        if tape is None:
            self.loads.leave(load)
        return tape

    async def _queue(self, ask: Ask, found: Found | None, load: Load) -> Tape | None:
        if not await self.backlog.has_room(load.lane):
            raise RequestError(errors.queue_full())
        is_sent = False
        try:
            tape = await self._prepare_and_begin(ask, found, load)
            is_sent = tape is not None
            return tape
        finally:
            self.backlog.has_come(is_sent=is_sent)

    async def _prepare_and_begin(self, ask: Ask, found: Found | None, load: Load) -> Tape | None:
        created_at_ms = time.time_ns() // 1_000_000
        # Named first where nobody else has a say in it: an engine may begin before the log is open.
        new_id = ids.new_generation_id() if found is None else ""
        with self.crowd.member() as member:
            n_following = await member.n_following()
            prepared = await self._prepare(ask.native, created_at_ms, new_id, n_following)
        tape = None
        try:
            generation_id = new_id if found is None else await self._name(ask, found)
            if generation_id is not None:
                tape = await self._begin_prepared(ask, prepared, generation_id, created_at_ms, load)
            return tape
        finally:
            if tape is None and new_id:
                self.hub.spawn(poke(self.bus, self.settings.model_key, new_id))

    async def _begin_prepared(
        self, ask: Ask, prepared: Prepared, generation_id: str, created_at_ms: int, load: Load
    ) -> Tape | None:
        replaces = await self._current(ask)
        requested = self._requested(ask, prepared, generation_id, created_at_ms, replaces)
        ordinal = await self._ordinal(ask.native)
        place = Place(n_slots=prepared.n_slots, ordinal=ordinal, lane=load.lane)
        ticket = await self.limiter.take(ask.access, ask.dialect, cost_of(prepared), requested)
        self.loads.keep(load, generation_id)
        try:
            tape = await self._begin(requested, place)
        except BaseException:
            self.limiter.give_back(ticket)
            raise
        if tape is None:
            self.limiter.give_back(ticket)
            return None
        self.limiter.hold(ticket, tape)
        return tape

    async def _name(self, ask: Ask, found: Found) -> str | None:
        """The id that an idempotency key stands for; None where somebody else has just taken that key."""
        if ask.idempotency is None or found.generation_id is not None:
            return found.generation_id  # who named it has not opened its log, and may be dead
        return await self.idempotency.take(ask.caller, ask.idempotency, found)

    async def _begin(self, requested: Requested, place: Place) -> Tape | None:
        if requested.idempotency_key is not None:
            return await self._begin_once(requested, place)
        tape = await self.hub.open(requested.generation_id, is_new=True, requested=requested)
        try:
            await self.opener.open(requested, place)
            await self.opener.show(requested)
        except BaseException:
            tape.release()
            raise
        return tape

    async def _begin_once(self, requested: Requested, place: Place) -> Tape | None:
        """The same where others may open the same log: only then is it known what it begins with."""
        if not await self.opener.open(requested, place):
            return None
        await self.opener.show(requested)
        return await self.hub.open(requested.generation_id)

    async def _prepare(
        self, native: NativeRequest, created_at_ms: int, new_id: str, n_following: int
    ) -> Prepared:
        body = orjson.dumps(native.body)
        question = Prepare(
            kind=native.kind,
            body=body,
            created_at_ms=created_at_ms,
            generation_id=new_id,
            n_following=n_following,
        )
        return await self.engines.ask(question, Prepared, n_bytes=len(body))

    async def _ordinal(self, native: NativeRequest) -> int | None:
        """The engine that must do it, because of the slot that is asked for; None for any."""
        slot = native.body.get("id_slot")
        if not isinstance(slot, int) or slot < 0:
            return None
        ordinal = await self.engines.ordinal_of(slot, self.model.loaded().n_slots)
        if ordinal is not None:
            self.backlog.note_ordinal(ordinal)
        return ordinal

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
            idempotency_key=None if ask.idempotency is None else ask.idempotency.key,
            priority=ask.priority,
            content=ask.access.content or self.settings.record_content,
            created_at_ms=created_at_ms,
            deadline_at_ms=created_at_ms + round(self.settings.deadline_s * 1000),
        )

    async def _current(self, ask: Ask) -> str | None:
        """The generation that the conversation shows now and that this one is to displace."""
        if ask.conversation is None:
            return None
        entry = await self.conversations.find(ask.caller, ask.conversation)
        return None if entry is None else entry.generation_id
