"""Slots: what each sequence of the context holds and does, and which one a prompt should take. Pure."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from services.engine import checkpoints
from services.engine.checkpoints import Checkpoint
from services.engine.common_prefix import common_prefix
from services.engine.context_shift import Shift, ShiftPlan
from services.engine.states import State

SLOT_PROMPT_SIMILARITY = 0.10
"""A slot is chosen for its cache when more than this part of the prompt is in it (llama-server)."""


class Memory(Protocol):
    """The KV cache as the scheduler changes it. Positions are tokens from the start of a slot."""

    @property
    def can_move(self) -> bool:
        """Whether cells can get other positions."""
        ...

    @property
    def needs_checkpoints(self) -> bool:
        """Whether `keep` may fail, so that copies of what was there are worth having."""
        ...

    @property
    def is_settled(self) -> bool:
        """False from `move` until the next batch is decoded: nothing can be saved meanwhile."""
        ...

    def can_keep(self, slot: int, n_tokens: int) -> bool:
        """Whether the slot could go on after its first `n_tokens`."""
        ...

    def keep(self, slot: int, n_tokens: int) -> int:
        """Drop all but the first `n_tokens` of a slot's cells; how many are left (all those or none)."""
        ...

    def copy(self, source: int, target: int) -> None:
        """Make `target`, which is empty, hold what `source` holds."""
        ...

    def move(self, slot: int, source: int, target: int, n: int) -> None:
        """Move `n` cells from `source` forward to `target`; those between the two are dropped."""
        ...

    def n_bytes(self, slot: int) -> int:
        """What `save` would take."""
        ...

    def save(self, slot: int, *, is_partial: bool = False) -> State | None:
        """Copy a slot's cells out (partial: only what cannot be cut); None if that fails."""
        ...

    def load(self, slot: int, state: State, *, is_partial: bool = False) -> bool:
        """Put saved cells into a slot in place of what it holds; False, and it is empty, if that fails."""
        ...


@dataclass(kw_only=True)
class Work:
    """What one slot does for one choice.

    tokens: what is decoded before it generates (the prompt, and all emitted tokens but the last when
    it continues). chunks: sizes still to be decoded. n_done: how many of `tokens` have been.
    n_new: how many were not found in the cache. is_repeated: chunks must stay whole, as they were at
    first. shifts: those to be repeated between them. resume_id: the last emitted token of a
    continued choice. next_id: the token to be decoded next; None while prefilling and while a
    sampled token is awaited. leader: the slot whose prompt is copied here instead of being decoded
    again. turn: when the slot was last served. shift_plan: how to shift when the slot is full, None
    for not at all. checkpoint_at: after how many cells to make checkpoints. is_aside: another context
    decodes its prompt just now. stays: it has to be decoded here.
    """

    generation_id: str
    choice: int
    tokens: Sequence[int]
    chunks: deque[int]
    n_done: int = 0
    n_new: int = 0
    is_repeated: bool = False
    shifts: deque[Shift] = field(default_factory=deque[Shift])
    resume_id: int | None = None
    next_id: int | None = None
    leader: int | None = None
    turn: int = 0
    shift_plan: ShiftPlan | None = None
    checkpoint_at: tuple[int, ...] = ()
    is_aside: bool = False
    stays: bool = False


@dataclass(kw_only=True)
class Slot:
    """One sequence of the context. cached: ids whose KV cells it holds, in order of position.

    checkpoints: copies of earlier states, while its first tokens are still the same.
    """

    id: int
    cached: list[int] = field(default_factory=list[int])
    checkpoints: list[Checkpoint] = field(default_factory=list[Checkpoint])
    last_used: int = -1
    work: Work | None = None

    @property
    def next_chunk(self) -> int:
        """Size of the prompt chunk to be decoded next; 0 when there is none."""
        return self.work.chunks[0] if self.work is not None and self.work.chunks else 0

    @property
    def is_generating(self) -> bool:
        return self.work is not None and self.work.next_id is not None

    def working(self) -> Work:
        """Its work, which it must have."""
        assert self.work is not None, f"slot {self.id} has no work"
        return self.work


class SlotTable:
    """All slots, the KV cache behind them, and a clock that counts uses."""

    def __init__(self, n_slots: int, memory: Memory) -> None:
        self.slots = [Slot(id=number) for number in range(n_slots)]
        self.memory = memory
        self._clock = 0

    def tick(self) -> int:
        self._clock += 1
        return self._clock

    def free(self) -> list[Slot]:
        return [slot for slot in self.slots if slot.work is None]

    def keep(self, slot: Slot, n_tokens: int) -> None:
        """Drop what a slot caches behind its first `n_tokens` (or all of it: not every model can)."""
        del slot.cached[self.memory.keep(slot.id, n_tokens) :]
        slot.checkpoints = checkpoints.valid(slot.checkpoints, len(slot.cached))

    def release(self, slot: Slot, *, keeps_cache: bool = True) -> None:
        """Free a slot. Its cache stays for the next prompt, but not a follower's (as llama-server)."""
        is_follower = slot.work is not None and slot.work.leader is not None
        slot.work = None
        slot.last_used = self.tick()
        if is_follower or not keeps_cache:
            self.keep(slot, 0)

    def shift(self, slot: Slot, shift: Shift) -> None:
        """Drop tokens in the middle of what a slot holds."""
        n_behind = len(slot.cached) - shift.n_keep - shift.n_discard
        self.memory.move(slot.id, shift.n_keep + shift.n_discard, shift.n_keep, n_behind)
        shift.apply(slot.cached)
        slot.checkpoints = checkpoints.valid(slot.checkpoints, shift.n_keep)

    def is_leading(self, slot: Slot) -> bool:
        """Whether other slots still use cells of this one."""
        return any(s.work is not None and s.work.leader == slot.id for s in self.slots)


def least_recently_used(slots: Iterable[Slot]) -> Slot | None:
    """The slot whose last use is longest ago; the last one among equals, as llama-server."""
    return min(slots, key=lambda slot: (slot.last_used, -slot.id), default=None)


def choose_slot(
    free: Sequence[Slot], prompt: list[int], similarity: float = SLOT_PROMPT_SIMILARITY
) -> tuple[Slot, bool]:
    """The slot that holds most of `prompt` if that is enough of it, else the least recently used.

    And whether it was chosen for what it holds. similarity: 0 means that nobody is. One must be free.
    """
    shared = [common_prefix(slot.cached, prompt) for slot in free]
    best = max(range(len(free)), key=lambda i: shared[i])
    if similarity > 0 and shared[best] > similarity * len(prompt):
        return free[best], True
    oldest = least_recently_used(free)
    assert oldest is not None, "a free slot"
    return oldest, False
