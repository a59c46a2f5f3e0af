"""A context for prompts that are decoded aside: it computes nothing, and notes what was done to it."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from services.engine.batches import DECODED
from services.engine.states import State
from tests.unit.engine.recording_memory import CopiedCells

WAIT_S = 10.0


@dataclass
class NotedContext:
    """A context of nothing. fails: what its decode calls answer. gate: they wait for it."""

    calls: list[tuple[object, ...]] = field(default_factory=list[tuple[object, ...]])
    fails: int = DECODED
    has_memory: bool = True
    gate: threading.Event | None = None
    entered: threading.Event = field(default_factory=threading.Event)
    cells: dict[int, int] = field(default_factory=dict[int, int])

    def set_threads(self, n_threads: int) -> None:
        self.calls.append(("threads", n_threads))

    def decode(self, ids: Sequence[int], start: int) -> int:
        self.entered.set()
        if self.gate is not None:
            assert self.gate.wait(WAIT_S)
        self.calls.append(("decode", start, len(ids)))
        self.cells.update(enumerate(ids, start))
        return self.fails

    def load(self, state: State) -> bool:
        assert isinstance(state, CopiedCells)
        self.cells = dict(state.cells)
        return self.has_memory

    def save(self, *, is_partial: bool = False) -> State | None:
        self.calls.append(("save", is_partial))
        return CopiedCells(dict(self.cells)) if self.has_memory else None

    def close(self) -> None:
        self.calls.append(("close",))
