"""What goes into the next `llama_decode` call. Pure.

A batch is at most one ubatch, so that nobody waits longer than that. From 64 rows the CPU backend
attends with another kernel, whose results differ; so prompt chunks of 64 rows and more never share a
batch with decode rows or small chunks, and what a slot computes does not depend on its neighbours
(below 512 KV cells, with quantized weights, but for the place of its cells). Where others generate,
long prompts are decoded in another context (see SidePrompts) or in pieces (see PrefillBudget); the log's
`progress` events say in which.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from services.engine.checkpoint_maker import CheckpointMaker
from services.engine.kernels import SMALL_ROWS
from services.engine.prefill_budget import PrefillBudget
from services.engine.side_prompts import SidePrompts
from services.engine.slots import Slot, SlotTable

DECODED = 0
KV_FULL = 1
"""Results of a decode call; any other number is a failure."""
UNLIMITED = 1 << 30
LEAST_ROOM = 8
"""So many prompt tokens find a place beside decode rows, however many these are."""


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
    """What a decoded batch brought one slot. n_done: tokens of its work that have been decoded, or were
    found. row: the batch row to sample its next token from, if it has one."""

    slot: int
    is_prompt: bool
    n_done: int
    row: int | None


class Batcher:
    """Plans batches and notes what they brought. max_rows: of one batch."""

    def __init__(
        self,
        table: SlotTable,
        *,
        max_rows: int,
        budget: PrefillBudget,
        checkpoints: CheckpointMaker,
        side: SidePrompts,
    ) -> None:
        self._table = table
        self._side = side
        self._max_rows = max_rows
        self._small_rows = min(SMALL_ROWS, max_rows)
        self._budget = budget
        self._checkpoints = checkpoints
        self._is_decoding_due = False

    def plan(self) -> Batch | None:
        """Decode rows with the pieces that fit beside them, or large chunks; None: nothing to do."""
        decoding = [slot for slot in self._table.slots if slot.is_generating]
        prefilling = self._prefilling()
        if decoding:
            here = [slot for slot in prefilling if not self._side.wants(slot)]
            parts = self._parts_beside(decoding, here)
        else:
            parts = self._prefill_parts(prefilling, UNLIMITED)
        # Only rows of slots that follow one another go through one graph.
        return Batch(parts=tuple(sorted(parts, key=by_slot))) if parts else None

    def _prefilling(self) -> list[Slot]:
        """Slots with a chunk to decode here, the one that waits longest first."""
        slots = [s for s in self._table.slots if s.next_chunk and not s.working().is_aside]
        return sorted(slots, key=lambda slot: slot.working().turn)

    def _parts_beside(self, decoding: list[Slot], prefilling: list[Slot]) -> list[Part]:
        """What is too large to go beside decode rows goes before them, every other time."""
        allowed = [slot for slot in prefilling if self._is_whole(slot) or self._budget.is_open]
        room, size = self._room(len(decoding)), self._budget.size
        if size <= SMALL_ROWS:
            size = min(size, max(room, 1))
        if allowed and not self._is_decoding_due and self._rows(allowed[0], size) > room:
            return self._prefill_parts(allowed, size)
        return [decode_part(slot) for slot in decoding] + self._pack(allowed, room, size)

    def _room(self, n_decoding: int) -> int:
        room = max(self._small_rows - n_decoding, LEAST_ROOM)
        return min(room, self._max_rows - n_decoding)

    def _prefill_parts(self, prefilling: list[Slot], size: int) -> list[Part]:
        """Pieces like the first one, small or large. size: of all those that need not stay whole."""
        if prefilling and self._rows(prefilling[0], size) > SMALL_ROWS:
            return self._pack(prefilling, self._max_rows, size, least=SMALL_ROWS + 1)
        return self._pack(prefilling, self._small_rows, size)

    def _is_whole(self, slot: Slot) -> bool:
        """Whether its chunks are not to be cut: they are repeated, or the prompt is short."""
        work = slot.working()
        return work.is_repeated or work.n_new <= self._budget.n_short

    def _rows(self, slot: Slot, size: int) -> int:
        """Rows of the slot's next piece: its whole chunk, or what the budget makes of it."""
        if size == UNLIMITED or self._is_whole(slot):
            return slot.next_chunk
        return min(self._budget.piece(slot.next_chunk), size)

    def _pack(self, slots: list[Slot], room: int, size: int, least: int = 1) -> list[Part]:
        """The next pieces of as many `slots` as fit into `room` rows, in order; `size` is for all."""
        parts: list[Part] = []
        for slot in slots:
            n_rows = self._rows(slot, size)
            if least <= n_rows <= room:
                parts.append(prompt_part(slot, n_rows))
                room -= n_rows
                size = size if size == UNLIMITED else max(0, size - n_rows)
        return parts

    def commit(self, batch: Batch, elapsed_us: int = 0) -> tuple[Advance, ...]:
        """Note that `batch` was decoded, and how long it took. Slots to be sampled now wait for that."""
        n_decoding = sum(1 for part in batch.parts if not part.is_prompt)
        is_waited_for = any(slot.is_generating for slot in self._table.slots)
        if is_waited_for:
            self._budget.note(n_decoding, self._n_budgeted(batch), elapsed_us)
        self._is_decoding_due = not n_decoding and is_waited_for
        advances: list[Advance] = []
        n_rows = 0
        for part in batch.parts:
            n_rows += len(part.ids)
            advances += self._commit_part(part, n_rows - 1)
        return tuple(advances)

    def _n_budgeted(self, batch: Batch) -> int:
        """Prompt tokens of those that need a budget."""
        prompts = (part for part in batch.parts if part.is_prompt)
        slots = self._table.slots
        return sum(len(part.ids) for part in prompts if not self._is_whole(slots[part.slot]))

    def _commit_part(self, part: Part, last_row: int) -> list[Advance]:
        slot = self._table.slots[part.slot]
        work = slot.working()
        slot.cached.extend(part.ids)
        work.next_id = None
        row = last_row if part.is_sampled else None
        if part.is_prompt:
            self._advance_prompt(slot, len(part.ids))
        advance = Advance(slot=slot.id, is_prompt=part.is_prompt, n_done=work.n_done, row=row)
        return [advance, *self._lead(slot, row)] if part.is_prompt else [advance]

    def _advance_prompt(self, slot: Slot, n_rows: int) -> None:
        work = slot.working()
        work.turn = self._table.tick()
        work.n_done += n_rows
        work.chunks[0] -= n_rows
        if not work.chunks[0]:
            work.chunks.popleft()
        self._checkpoints.on_advance(slot)
        while work.shifts and work.shifts[0].at == work.n_done:
            self._table.shift(slot, work.shifts.popleft())
        if not work.chunks:
            work.next_id = work.resume_id

    def _lead(self, leader: Slot, row: int | None) -> list[Advance]:
        """A complete prompt is copied to the leader's followers, who sample from the same row."""
        if row is None:
            return []
        followers = [s for s in self._table.slots if s.work and s.work.leader == leader.id]
        for slot in followers:
            self._table.memory.copy(leader.id, slot.id)
            slot.cached = list(leader.cached)
        n_done = leader.working().n_done
        return [Advance(slot=s.id, is_prompt=True, n_done=n_done, row=row) for s in followers]


def by_slot(part: Part) -> int:
    return part.slot


def prompt_part(slot: Slot, n_rows: int) -> Part:
    """The next `n_rows` of its current chunk."""
    work = slot.working()
    is_last = len(work.chunks) == 1 and n_rows == work.chunks[0]
    return Part(
        slot=slot.id,
        start=len(slot.cached),
        ids=work.tokens[work.n_done : work.n_done + n_rows],
        is_sampled=is_last and work.resume_id is None,
        is_prompt=True,
    )


def decode_part(slot: Slot) -> Part:
    """The token that was sampled for it."""
    next_id = slot.working().next_id
    assert next_id is not None, "only generating slots are asked"
    return Part(
        slot=slot.id, start=len(slot.cached), ids=(next_id,), is_sampled=True, is_prompt=False
    )
