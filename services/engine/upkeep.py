"""What all runs of an engine need every now and then: leases, heartbeats, deadlines, the broker's pace."""

import asyncio
import time
from collections.abc import Mapping
from typing import Protocol

from schemas.errors import UNAVAILABLE, Problem
from services.bus.tasks import Delivery
from services.engine.run import Run

TICK_S = 0.25
MAX_UNSENT_TOKENS = 8192
"""So many tokens that the broker does not take let the decoder wait."""
_OVERDUE = Problem(
    code=UNAVAILABLE, message="the generation did not end before its deadline", retry_after_s=1
)


class Pausable(Protocol):
    """A decoder that can be kept waiting. Both are idempotent."""

    def pause(self) -> None: ...
    def resume(self) -> None: ...


class Upkeep:
    """Looks at what the runner has now, by generation id. Event-loop thread only.

    pending: what is not claimed yet. lease_s: after which a delivery that is not renewed comes again.
    """

    def __init__(
        self,
        runs: Mapping[str, Run],
        pending: Mapping[str, Delivery],
        decoder: Pausable,
        lease_s: float,
    ) -> None:
        self._runs = runs
        self._pending = pending
        self._decoder = decoder
        self._renew_s = lease_s / 3

    async def run(self) -> None:
        """Until cancelled."""
        renewed_at = time.monotonic()
        while True:
            await asyncio.sleep(TICK_S)
            now = time.monotonic()
            self._send_heartbeats(now)
            self._fail_overdue(time.time_ns() // 1_000_000)
            self._keep_pace()
            if now - renewed_at >= self._renew_s:
                renewed_at = now
                await self._renew_leases()

    async def _renew_leases(self) -> None:
        running = [run.delivery for run in self._runs.values()]
        for delivery in (*running, *self._pending.values()):
            await delivery.in_progress()

    def _send_heartbeats(self, now: float) -> None:
        for run in self._runs.values():
            output = run.requested.params.output
            is_due = now - run.last_append_at >= output.sse_ping_interval > 0
            if run.is_started and is_due and output.stream:
                run.last_append_at = now
                run.heartbeat()

    def _fail_overdue(self, now_ms: int) -> None:
        for run in self._runs.values():
            if now_ms > run.requested.deadline_at_ms:
                run.fail(_OVERDUE)

    def _keep_pace(self) -> None:
        """Let the decoder wait while the broker does not take what it says."""
        if sum(run.n_unsent for run in self._runs.values()) > MAX_UNSENT_TOKENS:
            self._decoder.pause()
        else:
            self._decoder.resume()
