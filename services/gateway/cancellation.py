"""Ending a log from the command side. Who writes first decides: the fence is the only arbiter."""

import logging
import time

from schemas.errors import Problem
from schemas.events import Cancelled, Failed
from schemas.generation import Generation, apply_entry
from services.bus.connection import Bus
from services.bus.errors import BusError, Fenced, LogClosed
from services.bus.log import LogWriter, last_entry
from services.bus.tasks import poke

log = logging.getLogger(__name__)

WRITER = "gateway"


class LogEnder:
    """Writes terminal events, and tells the engines to look."""

    def __init__(self, bus: Bus, writer: LogWriter, model_key: str) -> None:
        self._bus = bus
        self._writer = writer
        self._model_key = model_key

    async def cancel(
        self, generation_id: str, reason: str, *, state: Generation | None = None
    ) -> bool:
        """End that log with `cancelled`; True if that was this call's doing.

        reason: client_gone, replaced … state: what is known of the log, however stale; None: nothing.
        Never raises: when the broker stays away the generation ends by itself.
        """
        event = Cancelled(by=WRITER, reason=reason, at_ms=_now_ms())
        return await self._end(generation_id, event, state)

    async def fail(self, generation_id: str, problem: Problem) -> bool:
        """The same with `failed`."""
        return await self._end(generation_id, Failed(problem=problem, by=WRITER, at_ms=_now_ms()))

    async def _end(
        self, generation_id: str, event: Cancelled | Failed, state: Generation | None = None
    ) -> bool:
        try:
            if state is None:
                state = await self._after_last(generation_id, Generation())
            is_ours = await self._append(generation_id, event, state)
        except BusError as error:
            log.warning("action=end_failed generation=%s error=%r", generation_id, error)
            return False
        if is_ours:
            await poke(self._bus, self._model_key, generation_id)
        return is_ours

    async def _append(
        self, generation_id: str, event: Cancelled | Failed, state: Generation
    ) -> bool:
        """Append until it is stored or somebody else has ended the log. Each time that an engine's
        tokens were first, their sequence is the next fence."""
        while True:
            try:
                await self._writer.append(state, generation_id, event)
            except LogClosed:
                return False
            except Fenced:
                state = await self._after_last(generation_id, state)
            else:
                return True

    async def _after_last(self, generation_id: str, state: Generation) -> Generation:
        """`state`, moved on to the last entry that the leader has; what lies between is not folded,
        since only the end and the sequence matter here."""
        entry = await last_entry(self._bus, generation_id)
        return state if entry is None else apply_entry(state, entry.seq, entry.events)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
