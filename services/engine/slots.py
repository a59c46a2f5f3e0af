"""Slots: what each sequence of the context holds and does, and which one a prompt should take. Pure."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

SLOT_PROMPT_SIMILARITY = 0.10
"""A slot is chosen for its cache when more than this part of the prompt is in it (llama-server)."""


class Memory(Protocol):
    """The KV cache as the scheduler changes it."""

    def keep(self, slot: int, n_tokens: int) -> int:
        """Drop all but the first `n_tokens` of a slot's cells; how many are left (all those or none)."""
        ...

    def copy(self, source: int, target: int) -> None:
        """Make `target`, which is empty, hold what `source` holds."""
        ...


@dataclass(kw_only=True)
class Work:
    """What one slot does for one choice.

    tokens: what must be in the cache before it generates (the prompt, and all emitted tokens but the
    last when it continues). chunks: sizes still to be decoded, each whole. resume_id: the last
    emitted token of a continued choice. next_id: the token to be decoded next; None while
    prefilling and while a sampled token is awaited. leader: the slot whose prompt is copied here
    instead of being decoded again. turn: when the slot was last served.
    """

    generation_id: str
    choice: int
    tokens: Sequence[int]
    chunks: deque[int]
    resume_id: int | None = None
    next_id: int | None = None
    leader: int | None = None
    turn: int = 0


@dataclass(kw_only=True)
class Slot:
    """One sequence of the context. cached: ids whose KV cells it holds, in order of position."""

    id: int
    cached: list[int] = field(default_factory=list[int])
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

    def release(self, slot: Slot, *, keeps_cache: bool = True) -> None:
        """Free a slot. Its cache stays for the next prompt, but not a follower's (as llama-server)."""
        is_follower = slot.work is not None and slot.work.leader is not None
        slot.work = None
        slot.last_used = self.tick()
        if is_follower or not keeps_cache:
            self.keep(slot, 0)


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the longest common prefix of two id lists (both of the same sequence type)."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def least_recently_used(slots: Iterable[Slot]) -> Slot | None:
    """The slot whose last use is longest ago; the last one among equals, as llama-server."""
    return min(slots, key=lambda slot: (slot.last_used, -slot.id), default=None)


def choose_slot(
    free: Sequence[Slot], prompt: list[int], similarity: float = SLOT_PROMPT_SIMILARITY
) -> Slot:
    """The slot that holds most of `prompt` if that is enough of it, else the least recently used.

    One must be free.
    """
    shared = [common_prefix(slot.cached, prompt) for slot in free]
    best = max(range(len(free)), key=lambda i: shared[i])
    if shared[best] > similarity * len(prompt):
        return free[best]
    oldest = least_recently_used(free)
    assert oldest is not None, "a free slot"
    return oldest
