"""How a generation begins in the log: its task is queued, `requested` appended, its conversation swapped.

The task is sent first and `requested` second, so that no log is ever without its task. From the
moment the log is open, or the task is in the queue, some terminal event comes: the engine's, or ours.
"""

import asyncio
import logging
from dataclasses import dataclass

from schemas import subjects
from schemas.errors import RequestError
from schemas.events import Requested
from schemas.generation import Generation
from schemas.lanes import LIGHT
from schemas.tasks import Task
from services.bus.connection import Bus
from services.bus.errors import BusError, BusUnavailable, Fenced, LogClosed, MessageTooLarge
from services.bus.log import LogWriter
from services.bus.tasks import publish_task
from services.gateway import errors
from services.gateway.cancellation import Canceller
from services.streams.conversations import Conversations, entry_of
from services.streams.hub import Hub

log = logging.getLogger(__name__)

EMPTY = Generation()
CLIENT_GONE, REPLACED = "client_gone", "replaced"


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a task goes. n_slots: that it needs. ordinal: the engine that must do it. lane: else."""

    n_slots: int = 1
    ordinal: int | None = None
    lane: int = LIGHT


@dataclass(frozen=True, kw_only=True)
class Opener:
    """Opens logs. Keeps no state between them."""

    bus: Bus
    writer: LogWriter
    hub: Hub
    conversations: Conversations
    ender: Canceller

    async def open(self, requested: Requested, place: Place) -> bool:
        """Whether the log was opened by this call; False where it was not empty any more.

        Raises RequestError for what the log cannot keep; BusError, and the log then ends by itself.
        """
        # One connection keeps their order, so the second need not wait for the first one's answer.
        queueing = asyncio.ensure_future(self._queue(requested, place))
        await asyncio.sleep(0)
        is_ours = None if requested.idempotency_key is None else False
        try:
            is_ours = await self._append(requested)
            return is_ours
        finally:
            await self._settle(queueing, requested.generation_id, may_end=is_ours is not False)

    async def show(self, requested: Requested) -> None:
        """Let the conversation show the new generation, and cancel what it showed until now.

        Of two requests at once the later swap wins and cancels the other's generation. Raises BusError.
        """
        if requested.conversation is None:
            return
        try:
            old = await self.conversations.swap(
                requested.caller, requested.conversation, entry_of(requested)
            )
        except BusError:
            if requested.idempotency_key is None:  # else a retry finds it, and the sweep shows it
                self.hub.spawn(self.abandon(requested.generation_id))
            raise
        # Somebody who thought us dead may have done it for us.
        is_other = old is not None and old.generation_id != requested.generation_id
        if old is not None and is_other and not old.is_done:
            self.hub.spawn(self.abandon(old.generation_id, REPLACED))

    async def abandon(self, generation_id: str, reason: str = CLIENT_GONE) -> None:
        """Cancel a generation. Never raises."""
        await self.ender.cancel(generation_id, reason)

    async def _queue(self, requested: Requested, place: Place) -> None:
        task = task_of(requested, place.n_slots)
        await publish_task(self.bus, requested.model_key, task, place.ordinal, place.lane)

    async def _settle(
        self, queueing: "asyncio.Future[None]", generation_id: str, *, may_end: bool
    ) -> None:
        """A log whose task was refused must not stay open, if it may be ours to end."""
        try:
            await queueing
        except BusError:
            if may_end:
                self.hub.spawn(self.abandon(generation_id))
                raise

    async def _append(self, requested: Requested) -> bool:
        generation_id = requested.generation_id
        try:
            await self.writer.append(EMPTY, generation_id, requested)
        except (Fenced, LogClosed):
            # An engine waited too long for us and closed the log, or a request under the same
            # idempotency key opened it.
            log.warning("action=not_first_in_log generation=%s", generation_id)
            return False
        except MessageTooLarge as error:
            await self.ender.fail(generation_id, errors.too_large_to_keep())
            raise RequestError(errors.too_large_to_keep()) from error
        except BusUnavailable:
            # It may be stored all the same; nobody will read that answer, unless it can be asked for
            # again: then it may even be somebody else's who asked under the same key.
            if requested.idempotency_key is None:
                self.hub.spawn(self.abandon(generation_id))
            raise
        return True


def task_of(requested: Requested, n_slots: int) -> Task:
    """The pointer to that generation's log."""
    conversation = requested.conversation
    return Task(
        generation_id=requested.generation_id,
        n_slots=n_slots,
        priority=requested.priority,
        created_at_ms=requested.created_at_ms,
        deadline_at_ms=requested.deadline_at_ms,
        conversation=""
        if conversation is None
        else subjects.conversation_key(requested.caller, conversation),
    )
