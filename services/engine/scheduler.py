"""Who gets a slot and what goes into the next `llama_decode` call. Pure Python over plain data.

No ctypes, no clock, no log: changes of the KV cache leave through `Memory`, batches are values. One
thread calls: `admit`; `seat_next` until it gives nothing; `tidy`; `shift`; `plan`, decode, `commit`;
then `feed` or `release` for every slot that was sampled. `cancel` comes between any two of these.
"""

from dataclasses import dataclass, field

from services.engine.batches import Advance, Batch, Batcher
from services.engine.caching import Caching
from services.engine.checkpoint_maker import CheckpointMaker
from services.engine.context_shift import Shift, is_full
from services.engine.prefill_budget import N_SHORT, prefill_budget
from services.engine.reuse import Reuse
from services.engine.seating import Request, Seat, Seating, SeatingRules
from services.engine.side_prompts import SidePrompts
from services.engine.slots import Memory, Slot, SlotTable, least_recently_used


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """n_ctx, n_ctx_slot: tokens over all slots and of one. n_batch, n_ubatch: tokens. has_float_weights,
    has_bos: see SeatingRules. is_flash: see PrefillBudget. has_side: another context takes SidePrompts."""

    n_slots: int
    n_ctx: int = 4096
    n_ctx_slot: int = 4096
    n_batch: int = 2048
    n_ubatch: int = 512
    has_float_weights: bool = False
    has_bos: bool = False
    is_flash: bool = True
    has_side: bool = False
    caching: Caching = field(default_factory=Caching)

    @property
    def max_rows(self) -> int:
        """Most rows of one batch (decode rows alone may be more: one per slot)."""
        return max(1, min(self.n_ubatch, self.n_batch))

    @property
    def chunk(self) -> int:
        """Prompt tokens per chunk."""
        return max(1, min(self.n_ubatch, self.n_batch - self.n_slots))


class Scheduler:
    """Owner of the slots and of the queue of those who wait for one. side: prompts decoded elsewhere."""

    def __init__(self, sizes: Sizes, memory: Memory) -> None:
        caching = sizes.caching
        self._n_ctx_slot = sizes.n_ctx_slot
        self._table = SlotTable(sizes.n_slots, memory)
        maker = CheckpointMaker(
            self._table,
            n_most=caching.n_checkpoints,
            min_step=caching.checkpoint_step,
            n_ubatch=sizes.n_ubatch,
        )
        self._reuse = Reuse(self._table, caching, maker, n_ctx=sizes.n_ctx)
        rules = _rules(sizes, can_move=memory.can_move)
        self._seating = Seating(self._table, self._reuse, maker, rules)
        budget = prefill_budget(caching.prefill_budget, is_flash=sizes.is_flash)
        self.side = SidePrompts(
            self._table,
            maker,
            is_on=sizes.has_side,
            n_short=N_SHORT,
            max_piece=sizes.max_rows,
        )
        self._batcher = Batcher(
            self._table,
            max_rows=sizes.max_rows,
            budget=budget,
            checkpoints=maker,
            side=self.side,
        )

    @property
    def slots(self) -> list[Slot]:
        return self._table.slots

    @property
    def is_idle(self) -> bool:
        """Nothing runs and nobody waits."""
        return not len(self._seating) and len(self._table.free()) == len(self.slots)

    def admit(self, request: Request) -> None:
        """Queue a generation, or the choices of one of its prompts: at least one, at most all slots."""
        self._seating.admit(request)

    def has_waiting(self, generation_id: str) -> bool:
        """Whether some of its choices still wait for a slot."""
        return generation_id in self._seating

    def seat_next(self) -> tuple[str, tuple[Seat, ...]] | None:
        """Seat the first in the queue that can be; see `Seating.seat_next`."""
        return self._seating.seat_next()

    def tidy(self) -> list[str]:
        """Look after idle slots once somebody was seated; what was done with prompts, for the log."""
        self._reuse.save_idle()
        notes, self._reuse.notes = self._reuse.notes, []
        return notes

    def shift(self) -> list[tuple[Slot, Shift]]:
        """Shift what is full and may be; which slots were, and how."""
        full = [slot for slot in self.slots if self._is_to_shift(slot)]
        shifts = [self._shift_of(slot) for slot in full]
        for slot, shift in zip(full, shifts, strict=True):
            self._table.shift(slot, shift)
        return list(zip(full, shifts, strict=True))

    def plan(self) -> Batch | None:
        """The next batch; see `Batcher.plan`."""
        return self._batcher.plan()

    def commit(self, batch: Batch, elapsed_us: int = 0) -> tuple[Advance, ...]:
        """Note that `batch` was decoded, and how long it took; see `Batcher.commit`."""
        return self._batcher.commit(batch, elapsed_us)

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

    def erase(self, slot: int) -> int:
        """Empty a free slot; how many tokens it held."""
        n_held = len(self.slots[slot].cached)
        self._table.keep(self.slots[slot], 0)
        return n_held

    def restore(self, slot: int, tokens: list[int]) -> None:
        """A free slot holds these tokens now: somebody has put their cells there."""
        self.slots[slot].cached, self.slots[slot].checkpoints = tokens, []

    def purge_idle(self) -> bool:
        """Empty the idle slot that was used longest ago; False when none holds anything."""
        idle = least_recently_used(slot for slot in self._table.free() if slot.cached)
        if idle is not None:
            self._reuse.clear(idle)
        return idle is not None

    def largest(self) -> str:
        """The running generation that has (or will have) most tokens in the KV cache."""
        held: dict[str, int] = {}
        for work, slot in ((s.work, s) for s in self.slots if s.work is not None):
            n_coming = 0 if work.is_aside else len(work.tokens)
            n_tokens = max(len(slot.cached), n_coming)
            held[work.generation_id] = held.get(work.generation_id, 0) + n_tokens
        return max(held, key=lambda generation_id: held[generation_id])

    def _is_to_shift(self, slot: Slot) -> bool:
        work = slot.work
        can_shift = work is not None and work.shift_plan is not None and slot.is_generating
        return can_shift and is_full(len(slot.cached), self._n_ctx_slot)

    def _shift_of(self, slot: Slot) -> Shift:
        plan = slot.working().shift_plan
        assert plan is not None, "asked only for those who may"
        return plan.shift(len(slot.cached), self._n_ctx_slot)


def _rules(sizes: Sizes, *, can_move: bool) -> SeatingRules:
    return SeatingRules(
        chunk=sizes.chunk,
        max_chunk=sizes.max_rows,
        n_ctx_slot=sizes.n_ctx_slot,
        has_float_weights=sizes.has_float_weights,
        is_shifting=sizes.caching.is_shifting and can_move,
        has_bos=sizes.has_bos,
    )


def _works_for(slot: Slot, generation_id: str) -> bool:
    return slot.work is not None and slot.work.generation_id == generation_id
