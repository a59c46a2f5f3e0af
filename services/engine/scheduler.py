"""Who gets a slot and what goes into the next `llama_decode` call. Pure Python over plain data.

No ctypes, no clock, no log: changes of the KV cache leave through `Memory`, batches are values. One
thread calls: `admit`; `seat_next` until it gives nothing; `plan`, decode, `commit`; then `feed` or
`release` for every slot that was sampled. `cancel` comes between any two of these.
"""

from dataclasses import dataclass

from services.engine.batches import PREFILL_BUDGET, Advance, Batch, Batcher
from services.engine.seating import Request, Seat, Seating
from services.engine.slots import Memory, Slot, SlotTable, least_recently_used


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """n_batch, n_ubatch: tokens. prefill_budget: see PREFILL_BUDGET. has_float_weights: see Seating."""

    n_slots: int
    n_batch: int = 2048
    n_ubatch: int = 512
    prefill_budget: int = PREFILL_BUDGET
    has_float_weights: bool = False

    @property
    def max_rows(self) -> int:
        """Most rows of one batch (decode rows alone may be more: one per slot)."""
        return max(1, min(self.n_ubatch, self.n_batch))

    @property
    def chunk(self) -> int:
        """Prompt tokens per chunk."""
        return max(1, min(self.n_ubatch, self.n_batch - self.n_slots))


class Scheduler:
    """Owner of the slots and of the queue of those who wait for one."""

    def __init__(self, sizes: Sizes, memory: Memory) -> None:
        self._table = SlotTable(sizes.n_slots, memory)
        self._seating = Seating(
            self._table,
            chunk=sizes.chunk,
            max_chunk=sizes.max_rows,
            has_float_weights=sizes.has_float_weights,
        )
        self._batcher = Batcher(
            self._table, max_rows=sizes.max_rows, prefill_budget=sizes.prefill_budget
        )

    @property
    def slots(self) -> list[Slot]:
        return self._table.slots

    @property
    def is_idle(self) -> bool:
        """Nothing runs and nobody waits."""
        return not len(self._seating) and len(self._table.free()) == len(self.slots)

    def admit(self, request: Request) -> None:
        """Queue a generation, which needs at least one slot and at most as many as there are."""
        self._seating.admit(request)

    def seat_next(self) -> tuple[str, tuple[Seat, ...]] | None:
        """Seat the first in the queue that can be; see `Seating.seat_next`."""
        return self._seating.seat_next()

    def plan(self) -> Batch | None:
        """The next batch; see `Batcher.plan`."""
        return self._batcher.plan()

    def commit(self, batch: Batch) -> tuple[Advance, ...]:
        """Note that `batch` was decoded; see `Batcher.commit`."""
        return self._batcher.commit(batch)

    def feed(self, slot: int, token: int) -> None:
        """The token that was sampled for a slot: it is decoded next."""
        self.slots[slot].working().next_id = token

    def release(self, slot: int, *, keeps_cache: bool = True) -> None:
        """Free a slot."""
        self._table.release(self.slots[slot], keeps_cache=keeps_cache)

    def cancel(self, generation_id: str, *, keeps_cache: bool = True) -> tuple[int, ...]:
        """Forget a generation, queued or running; the slots that it had, now free."""
        self._seating.forget(generation_id)
        slots = tuple(slot.id for slot in self.slots if _works_for(slot, generation_id))
        for slot in slots:
            self.release(slot, keeps_cache=keeps_cache)
        return slots

    def purge_idle(self) -> bool:
        """Empty the idle slot that was used longest ago; False when none holds anything."""
        idle = least_recently_used(slot for slot in self._table.free() if slot.cached)
        if idle is not None:
            self._table.keep(idle, 0)
        return idle is not None

    def largest(self) -> str:
        """The running generation that has (or will have) most tokens in the KV cache."""
        held: dict[str, int] = {}
        for work, slot in ((s.work, s) for s in self.slots if s.work is not None):
            n_tokens = max(len(slot.cached), len(work.tokens))
            held[work.generation_id] = held.get(work.generation_id, 0) + n_tokens
        return max(held, key=lambda generation_id: held[generation_id])


def _works_for(slot: Slot, generation_id: str) -> bool:
    return slot.work is not None and slot.work.generation_id == generation_id
