"""The KV cache of scheduler tests: has cells, and notes what was done to them."""

from collections.abc import Mapping
from dataclasses import dataclass

from services.engine.caching import Caching
from services.engine.scheduler import Batch, Scheduler, Sizes
from services.engine.seating import Need, Request, Seat
from services.engine.states import State

BYTES_PER_TOKEN = 1000


@dataclass(frozen=True)
class CopiedCells:
    """A saved slot: ids by position."""

    cells: dict[int, int]

    @property
    def nbytes(self) -> int:
        return BYTES_PER_TOKEN * len(self.cells)


class RecordingMemory:
    """can_cut: whether a slot's cells can be dropped in part (a recurrent model's cannot).

    cells: ids by position, per slot. has_room: whether anything can be loaded.
    """

    def __init__(self, *, can_cut: bool = True) -> None:
        self.calls: list[tuple[object, ...]] = []
        self.cells: dict[int, dict[int, int]] = {}
        self.can_move = can_cut
        self.needs_checkpoints = not can_cut
        self.has_room = True
        self.is_settled = True
        self._can_cut = can_cut

    def decode(self, batch: Batch) -> None:
        self.is_settled = True
        for part in batch.parts:
            cells = self.cells.setdefault(part.slot, {})
            for position, token in enumerate(part.ids, part.start):
                assert position == len(cells), "cells come one after another"
                cells[position] = token

    def held(self, slot: int) -> list[int]:
        """Ids in order of position; there must be no gaps."""
        cells = self.cells.get(slot, {})
        return [cells[position] for position in range(len(cells))]

    def can_keep(self, slot: int, n_tokens: int) -> bool:
        return self._can_cut or len(self.cells.get(slot, {})) == n_tokens

    def keep(self, slot: int, n_tokens: int) -> int:
        n_kept = n_tokens if self.can_keep(slot, n_tokens) else 0
        self.calls.append(("keep", slot, n_kept))
        old = self.cells.get(slot, {})
        self.cells[slot] = {place: token for place, token in old.items() if place < n_kept}
        return n_kept

    def copy(self, source: int, target: int) -> None:
        self.calls.append(("copy", source, target))
        self.cells[target] = dict(self.cells[source])

    def move(self, slot: int, source: int, target: int, n: int) -> None:
        self.calls.append(("move", slot, source, target, n))
        self.is_settled = False
        cells = self.cells[slot]
        for position in range(target, source):
            cells.pop(position, None)
        for position in range(source, source + n):
            cells[position + target - source] = cells.pop(position)

    def n_bytes(self, slot: int) -> int:
        return BYTES_PER_TOKEN * len(self.cells.get(slot, {}))

    def save(self, slot: int, *, is_partial: bool = False) -> State | None:
        self.calls.append(("save", slot, is_partial))
        assert self.is_settled, "what was moved is not yet where it belongs"
        return CopiedCells(dict(self.cells[slot]))

    def load(self, slot: int, state: State, *, is_partial: bool = False) -> bool:
        self.calls.append(("load", slot, is_partial))
        assert isinstance(state, CopiedCells)
        self.cells[slot] = dict(state.cells) if self.has_room else {}
        return self.has_room

    def save_file(self, slot: int, path: str, tokens: object) -> int:
        self.calls.append(("save_file", slot, path, tokens))
        return self.n_bytes(slot)

    def load_file(self, slot: int, path: str) -> tuple[list[int], int]:
        self.calls.append(("load_file", slot, path))
        return self.held(slot), self.n_bytes(slot)


class Bench:
    """A scheduler, its memory, and a model whose every token is 7."""

    def __init__(
        self, *, can_cut: bool = True, caching: Mapping[str, object] | None = None, **sizes: object
    ) -> None:
        self.memory = RecordingMemory(can_cut=can_cut)
        known = Caching(**(caching or {}))  # type: ignore[arg-type]
        self.scheduler = Scheduler(
            Sizes(**{"n_slots": 4, **sizes}, caching=known),  # type: ignore[arg-type]
            self.memory,
        )
        self.elapsed_us = 0

    def admit(self, name: str, *needs: Need, **more: object) -> None:
        self.scheduler.admit(Request(generation_id=name, needs=needs, **more))  # type: ignore[arg-type]

    def seat(self) -> dict[str, tuple[Seat, ...]]:
        """Seat all who can be."""
        seated: dict[str, tuple[Seat, ...]] = {}
        while (next_ := self.scheduler.seat_next()) is not None:
            seated[next_[0]] = next_[1]
        if seated:
            self.scheduler.tidy()
        return seated

    def step(self) -> Batch | None:
        """Decode one batch and sample every row that is to be sampled."""
        self.scheduler.shift()
        batch = self.scheduler.plan()
        if batch is not None:
            self.memory.decode(batch)
            for advance in self.scheduler.commit(batch, self.elapsed_us):
                if advance.row is not None:
                    self.scheduler.feed(advance.slot, 7)
        return batch

    def steps(self, n: int) -> list[list[tuple[int, int]]]:
        """(slot, rows) of each part of the next n batches."""
        batches = [self.step() for _ in range(n)]
        return [[(p.slot, len(p.ids)) for p in batch.parts] if batch else [] for batch in batches]

    def check(self) -> None:
        """The scheduler knows what the cells hold."""
        for slot in self.scheduler.slots:
            assert self.memory.held(slot.id) == slot.cached, f"slot {slot.id}"


def need(prompt: range | tuple[int, ...], choice: int = 0, **more: object) -> Need:
    return Need(choice=choice, prompt=tuple(prompt), **more)  # type: ignore[arg-type]
