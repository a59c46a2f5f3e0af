"""What goes into the next `llama_decode` call. Pure.

A batch is at most one ubatch, so that nobody waits longer than that. From 64 rows the CPU backend
attends with another kernel, whose results differ; so prompt chunks of 64 rows and more never share a
batch with decode rows or small chunks, and what a slot computes does not depend on its neighbours
(below 512 KV cells, with quantized weights, but for the place of its cells).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from services.engine.slots import Slot, SlotTable

DECODED = 0
KV_FULL = 1
"""Results of a decode call; any other number is a failure."""
PREFILL_BUDGET = 1
"""Batches of large prompt chunks between two decode batches, while others generate."""
SMALL_ROWS = 63
"""Most rows of a batch that the CPU backend computes with the kernel of single tokens."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """Consecutive tokens of one slot, from position `start` on. is_sampled: the last one's logits are
    needed. is_prompt: a prompt chunk (or replayed tokens), not a token just sampled."""

    slot: int
    start: int
    ids: Sequence[int]
    is_sampled: bool
    is_prompt: bool


@dataclass(frozen=True, kw_only=True)
class Batch:
    """One `llama_decode` call."""

    parts: tuple[Part, ...]

    @property
    def n_rows(self) -> int:
        return sum(len(part.ids) for part in self.parts)


@dataclass(frozen=True, kw_only=True)
class Advance:
    """What a decoded batch brought one slot. n_cached: tokens that it holds now. row: the batch row
    to sample its next token from, if it has one."""

    slot: int
    is_prompt: bool
    n_cached: int
    row: int | None


class Batcher:
    """Plans batches and notes what they brought. max_rows: of one batch."""

    def __init__(self, table: SlotTable, *, max_rows: int, prefill_budget: int) -> None:
        self._table = table
        self._max_rows = max_rows
        self._small_rows = min(SMALL_ROWS, max_rows)
        self._prefill_budget = prefill_budget
        self._n_prefills = 0

    def plan(self) -> Batch | None:
        """Decode rows with the chunks that fit beside them, or large chunks; None: nothing to do."""
        decoding = [slot for slot in self._table.slots if slot.is_generating]
        prefilling = self._prefilling()
        if prefilling and self._is_turn_of_prefill(prefilling[0], len(decoding)):
            return Batch(parts=tuple(self._prefill_parts(prefilling)))
        parts = [_decode_part(slot) for slot in decoding]
        parts += _pack(prefilling, self._small_rows - len(parts))
        return Batch(parts=tuple(parts)) if parts else None

    def _prefilling(self) -> list[Slot]:
        """Slots with a chunk to decode, the one that waits longest first."""
        slots = [slot for slot in self._table.slots if slot.next_chunk]
        return sorted(slots, key=lambda slot: slot.working().turn)

    def _is_turn_of_prefill(self, first: Slot, n_decoding: int) -> bool:
        """Whether `first` does not fit beside the decode rows, and may go before them."""
        if first.next_chunk <= self._small_rows - n_decoding:
            return False
        return not n_decoding or self._n_prefills < self._prefill_budget

    def _prefill_parts(self, prefilling: list[Slot]) -> list[Part]:
        if prefilling[0].next_chunk <= SMALL_ROWS:
            return _pack(prefilling, self._small_rows)
        large = [slot for slot in prefilling if slot.next_chunk > SMALL_ROWS]
        return _pack(large, self._max_rows)

    def commit(self, batch: Batch) -> tuple[Advance, ...]:
        """Note that `batch` was decoded. Slots to be sampled now wait for their token."""
        has_decoded = any(not part.is_prompt for part in batch.parts)
        is_delay = not has_decoded and any(slot.is_generating for slot in self._table.slots)
        self._n_prefills = self._n_prefills + 1 if is_delay else 0
        advances: list[Advance] = []
        n_rows = 0
        for part in batch.parts:
            n_rows += len(part.ids)
            advances += self._commit_part(part, n_rows - 1)
        return tuple(advances)

    def _commit_part(self, part: Part, last_row: int) -> list[Advance]:
        slot = self._table.slots[part.slot]
        work = slot.working()
        slot.cached.extend(part.ids)
        work.next_id = None
        row = last_row if part.is_sampled else None
        advance = Advance(
            slot=slot.id, is_prompt=part.is_prompt, n_cached=len(slot.cached), row=row
        )
        if not part.is_prompt:
            return [advance]
        work.turn = self._table.tick()
        work.chunks.popleft()
        if not work.chunks:
            work.next_id = work.resume_id
        return [advance, *self._lead(slot, row)]

    def _lead(self, leader: Slot, row: int | None) -> list[Advance]:
        """A complete prompt is copied to the leader's followers, who sample from the same row."""
        if row is None:
            return []
        followers = [s for s in self._table.slots if s.work and s.work.leader == leader.id]
        for slot in followers:
            self._table.memory.copy(leader.id, slot.id)
            slot.cached = list(leader.cached)
        n_cached = len(leader.cached)
        return [Advance(slot=s.id, is_prompt=True, n_cached=n_cached, row=row) for s in followers]


def _pack(slots: list[Slot], room: int) -> list[Part]:
    """The next chunks of as many `slots` as fit into `room` rows, each whole, in order."""
    parts: list[Part] = []
    for slot in slots:
        if slot.next_chunk <= room:
            parts.append(_prompt_part(slot))
            room -= slot.next_chunk
    return parts


def _prompt_part(slot: Slot) -> Part:
    work, start = slot.working(), len(slot.cached)
    ids = work.tokens[start : start + work.chunks[0]]
    is_sampled = len(work.chunks) == 1 and work.resume_id is None
    return Part(slot=slot.id, start=start, ids=ids, is_sampled=is_sampled, is_prompt=True)


def _decode_part(slot: Slot) -> Part:
    next_id = slot.working().next_id
    assert next_id is not None, "only generating slots are asked"
    return Part(
        slot=slot.id, start=len(slot.cached), ids=(next_id,), is_sampled=True, is_prompt=False
    )
