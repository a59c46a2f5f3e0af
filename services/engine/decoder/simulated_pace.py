"""When a simulated decoder does what: one tick for all slots, and a wait before first tokens.

Time comes in as a function, so that tests need none. One thread.
"""

import random
from collections.abc import Callable, Iterable

from services.engine.batches import Batch, Part, decode_part, prompt_part
from services.engine.decoder.pipe import HasFileno, Pipe
from services.engine.protocol import Command, Output
from services.engine.scheduler import Scheduler, Sizes
from services.engine.simulation import Simulation
from services.engine.slots import Memory, Slot, Work

MAX_LAG_TICKS = 16
"""Beyond it lost ticks are not made up for; and so many are merged into one report at most."""
MAX_HELD = 4096


class PacedScheduler(Scheduler):
    """Seats as the real one does, but batches hold whatever is due: there is no kernel to please.

    now: seconds of a monotonic clock. wakes_at: when the next thing will be due.
    """

    def __init__(
        self, sizes: Sizes, memory: Memory, simulation: Simulation, now: Callable[[], float]
    ) -> None:
        super().__init__(sizes, memory)
        self._simulation = simulation
        self._now = now
        self._random = random.Random(0)
        self._tick_at = 0.0
        self._begun: dict[int, tuple[Work, float]] = {}
        self.wakes_at = 0.0

    def plan(self) -> Batch | None:
        """Decode rows if a tick is due, and every prompt chunk that is."""
        now = self._now()
        generating = [slot for slot in self.slots if slot.is_generating]
        parts: list[Part] = []
        if generating and self._is_tick(now):
            parts = [decode_part(slot) for slot in generating]
        wakes_at: list[float] = []
        for slot in [slot for slot in self.slots if slot.next_chunk]:
            due_at = self._chunk_due_at(slot, now)
            if due_at <= now:
                parts.append(prompt_part(slot, slot.next_chunk))
            if due_at > now or len(slot.working().chunks) > 1:
                wakes_at.append(due_at)
        if parts and not generating:
            self._tick_at = now + self._period()
        if parts or generating:
            wakes_at.append(self._tick_at)
        self.wakes_at = min(wakes_at, default=now)
        return Batch(parts=tuple(parts)) if parts else None

    def _is_tick(self, now: float) -> bool:
        """Whether a tick is due; it is taken then."""
        if now < self._tick_at:
            return False
        period = self._period()
        is_rested = now - self._tick_at > MAX_LAG_TICKS * period
        self._tick_at = (now if is_rested else self._tick_at) + period
        return True

    def _period(self) -> float:
        jitter = self._simulation.jitter * self._random.uniform(-1.0, 1.0)
        return (1.0 + jitter) / self._simulation.tokens_per_s

    def _chunk_due_at(self, slot: Slot, now: float) -> float:
        """A chunk takes its part of the prompt's time; the last one the time to the first token, too."""
        work = slot.working()
        known, begun_at = self._begun.get(slot.id, (None, now))
        if known is not work:
            begun_at = now
            self._begun[slot.id] = (work, begun_at)
        speed = self._simulation.prompt_tokens_per_s
        n_done = len(slot.cached) + slot.next_chunk
        spent_s = n_done / speed if speed else 0.0
        is_last = len(work.chunks) == 1
        return begun_at + (max(spent_s, self._simulation.ttft_ms / 1000) if is_last else spent_s)


class PacedPipe:
    """A pipe that waits for what is due, and merges the reports of ticks that came too late."""

    def __init__(self, pipe: Pipe, scheduler: PacedScheduler, now: Callable[[], float]) -> None:
        self._pipe = pipe
        self._scheduler = scheduler
        self._now = now
        self._held: list[Output] = []
        self._n_steps = 0

    def read_commands(self, *, can_wait: bool) -> list[Command]:
        """As `Pipe.read_commands`; while something runs it returns when the next thing is due."""
        wait_s = self._scheduler.wakes_at - self._now()
        if can_wait or wait_s > 0 or self._is_full:
            self.flush()
        if not can_wait and wait_s > 0:
            self._pipe.wait(wait_s)
        commands = self._pipe.read_commands(can_wait=can_wait)
        if commands:
            self.flush()  # what came before they are obeyed
        return commands

    def wait(self, timeout_s: float | None = None, other: HasFileno | None = None) -> None:
        """As `Pipe.wait`."""
        self.flush()
        self._pipe.wait(timeout_s, other)

    def write(self, outputs: Iterable[Output]) -> None:
        self._held += outputs
        self._n_steps += 1

    def flush(self) -> None:
        """Send what is held. Raises PipeClosed."""
        if self._held:
            held, self._held = self._held, []
            self._pipe.write(held)
        self._n_steps = 0

    @property
    def _is_full(self) -> bool:
        return self._n_steps >= MAX_LAG_TICKS or len(self._held) >= MAX_HELD
