"""Deadlines: whoever reads a generation that should be over by now ends it."""

import asyncio
import logging
import time
from collections.abc import Callable

from schemas.errors import UNAVAILABLE, Problem
from schemas.events import Failed
from services.bus.errors import BusError
from services.streams.ending import WRITER, LogEnder
from services.streams.hub import Hub
from services.streams.tape import Tape

log = logging.getLogger(__name__)

SWEEP_S = 1.0
RETRY_AFTER_S = 1
MESSAGE = (
    "The generation did not end within the server's time limit; ask for less or raise --timeout"
)


class Deadlines:
    """Looks once a second at the tapes that are being read, as long as there are any.

    now_ms: Unix milliseconds; the only clock here, and it never shows in a stream's bytes.
    """

    def __init__(
        self,
        hub: Hub,
        ender: LogEnder,
        *,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        sweep_s: float = SWEEP_S,
    ) -> None:
        self._hub = hub
        self._ender = ender
        self._now_ms = now_ms
        self._sweep_s = sweep_s
        self._is_armed = False
        self._ending: set[str] = set()

    def watch(self, tape: Tape) -> None:
        """A tape was opened; the sweep finds it in the hub."""
        del tape
        self._arm()

    def _arm(self) -> None:
        if not self._is_armed:
            self._is_armed = True
            asyncio.get_running_loop().call_later(self._sweep_s, self._on_timer)

    def _on_timer(self) -> None:
        self._is_armed = False
        self.sweep()
        if self._hub.n_tapes:
            self._arm()

    def sweep(self) -> None:
        """Begin to end what is being read and overdue."""
        for tape in list(self._hub.running()):
            is_overdue = self._now_ms() >= tape.projection.requested.deadline_at_ms
            if is_overdue and tape.generation_id not in self._ending:
                self._ending.add(tape.generation_id)
                self._hub.spawn(self._end(tape.generation_id))

    async def _end(self, generation_id: str) -> None:
        problem = Problem(code=UNAVAILABLE, message=MESSAGE, retry_after_s=RETRY_AFTER_S)
        event = Failed(problem=problem, by=WRITER, at_ms=self._now_ms())
        try:
            if await self._ender.end(generation_id, event):
                log.warning("action=deadline_passed generation=%s", generation_id)
        except BusError as error:  # the next sweep tries again
            log.warning("action=end_failed generation=%s error=%r", generation_id, error)
        finally:
            self._ending.discard(generation_id)
