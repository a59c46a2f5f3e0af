"""Prompts that are decoded while their generation is still being opened in the log.

A gateway that has a request prepared opens its log next, and the task that tells of it comes some
milliseconds later. An engine that is sure to get it begins at once. What the decoder says meanwhile is
held back; it goes into the log like all else once the log is claimed, and nowhere if it never is.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from schemas.generation import Generation
from services.engine.jobs import is_job_of
from services.engine.protocol import Admit, Cancel, Command, Dropped, Output

log = logging.getLogger(__name__)

EXPIRY_S = 1.0
"""How long a gateway may take to open the log; then the work is thrown away."""

Outputs = tuple[Output, ...]


@dataclass(eq=False)
class _HeadStart:
    """One prompt that runs ahead. reports: what was said of it, each by one step of the decoder."""

    admit: Admit
    expiry: asyncio.TimerHandle
    reports: list[Outputs] = field(default_factory=list[Outputs])


class HeadStarts:
    """Those of one engine. Event-loop thread only.

    send: to the decoder. on_outputs: takes what was held back, once its generation is claimed.
    """

    def __init__(
        self, send: Callable[[Command], None], on_outputs: Callable[[Outputs], None]
    ) -> None:
        self._send = send
        self._on_outputs = on_outputs
        self._running: dict[str, _HeadStart] = {}
        self._dropping: set[str] = set()

    def __contains__(self, generation_id: str) -> bool:
        return generation_id in self._running

    def __len__(self) -> int:
        return len(self._running)

    @property
    def is_busy(self) -> bool:
        """Whether the decoder works for one, or has not let go of it yet."""
        return bool(self._running or self._dropping)

    @property
    def n_slots(self) -> int:
        """Slots that they have, or wait for."""
        return sum(len(each.admit.choices) for each in self._running.values())

    def begin(self, admit: Admit) -> None:
        """Let the decoder begin; of a generation that is known already nothing is done."""
        generation_id = admit.generation_id
        if generation_id in self._running or generation_id in self._dropping:
            return
        expiry = asyncio.get_running_loop().call_later(EXPIRY_S, self.drop, generation_id)
        self._running[generation_id] = _HeadStart(admit, expiry)
        self._send(admit)

    def settle(self, state: Generation) -> None:
        """Before a log is claimed: keep only what is of use to it. What is kept expires no more:
        `release` or `drop` it. state: of the open log."""
        requested = state.requested
        assert requested is not None
        generation_id = requested.generation_id
        running = self._running.get(generation_id)
        if running is not None and state.attempt == 0 and is_job_of(running.admit, requested):
            running.expiry.cancel()
        else:
            self.drop(generation_id)

    def release(self, generation_id: str) -> bool:
        """The generation is claimed: whether it had a head start. What was held back is told now."""
        running = self._running.pop(generation_id, None)
        if running is None:
            return False
        running.expiry.cancel()
        for report in running.reports:
            self._on_outputs(report)
        return True

    def sift(self, outputs: Outputs) -> Outputs:
        """What may be told of one report of the decoder; the rest is held back, or let go. What comes of
        a dropped one after its Dropped is of the next admission."""
        if not self._running and not self._dropping:
            return outputs
        told, held = list[Output](), dict[str, list[Output]]()
        for output in outputs:
            generation_id: str = getattr(output, "generation_id", "")
            if generation_id in self._running:
                held.setdefault(generation_id, []).append(output)
            elif generation_id not in self._dropping:
                told.append(output)
            elif isinstance(output, Dropped):
                self._dropping.discard(generation_id)
        for generation_id, each in held.items():
            self._running[generation_id].reports.append(tuple(each))
        return tuple(told)

    def drop(self, generation_id: str) -> None:
        """Nobody needs it. Idempotent."""
        running = self._running.pop(generation_id, None)
        if running is not None:
            log.info("action=head_start_dropped generation=%s", generation_id)
            running.expiry.cancel()
            self._dropping.add(generation_id)
            self._send(Cancel(generation_id=generation_id, is_answered=True))

    def make_room(self, n_free: int) -> None:
        """Drop the oldest ones until they need no more slots than that."""
        while self._running and self.n_slots > n_free:
            self.drop(next(iter(self._running)))

    def forget(self) -> None:
        """The decoder is gone, and all of them with it."""
        running, self._running = self._running, {}
        for each in running.values():
            each.expiry.cancel()
        self._dropping.clear()
