"""Ending a log from the command side. Who writes first decides: the fence is the only arbiter."""

import logging
import time

from schemas.errors import Problem
from schemas.events import Cancelled, Failed
from schemas.generation import Generation, apply_entry
from services.bus.connection import Bus
from services.bus.errors import BusError
from services.bus.log import Entry, LogWriter, last_entry
from services.bus.tasks import poke
from services.streams.ending import append_end

log = logging.getLogger(__name__)

WRITER = "gateway"


class Canceller:
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
                last = await self._last_entry(generation_id)
                state = Generation()
                if last is not None:
                    state = apply_entry(state, last.seq, last.events)
            is_ours = await append_end(self._writer, self._last_entry, generation_id, state, event)
        except BusError as error:
            log.warning("action=end_failed generation=%s error=%r", generation_id, error)
            return False
        if is_ours:
            await poke(self._bus, self._model_key, generation_id)
        return is_ours

    async def _last_entry(self, generation_id: str) -> Entry | None:
        return await last_entry(self._bus, generation_id)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
