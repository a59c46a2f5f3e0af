# pyright: basic
"""A second context over a loaded model: room for one prompt. One thread at a time."""

from collections.abc import Sequence
from typing import Any

from services.engine.batches import Batch, Part
from services.engine.llama import streams
from services.engine.llama.batch import LlamaBatch
from services.engine.llama.library import lib
from services.engine.llama.memory import SlotMemory

_SLOT = 0


class SideContext:
    """Computes what the cells of one slot hold. pointer: a llama_context of one sequence, which it owns.

    memory: the slot's. n_streams: of the context that the cells come from and go to. max_piece: tokens
    of one call, at most.
    """

    def __init__(self, pointer: int, memory: SlotMemory, *, n_streams: int, max_piece: int) -> None:
        self._pointer = pointer
        self._memory = memory
        self._n_streams = n_streams
        self._batch = LlamaBatch(max_piece)

    def set_threads(self, n_threads: int) -> None:
        lib.llama_set_n_threads(self._pointer, n_threads, n_threads)

    def decode(self, ids: Sequence[int], start: int) -> int:
        """Decode tokens from position `start` on; DECODED or another number. The GIL is released."""
        part = Part(slot=_SLOT, start=start, ids=ids, is_sampled=False, is_prompt=True)
        result = lib.llama_decode(self._pointer, self._batch.fill(Batch(parts=(part,))))
        lib.llama_synchronize(self._pointer)
        return result

    def load(self, state: Any) -> bool:
        """Begin with cells that a slot of the other context held; False where they do not fit."""
        if self._n_streams > 1:
            if len(self._memory.blocks(_SLOT)) != 1:
                return False
            state = streams.to_one(state, self._n_streams)
        return self._memory.load(_SLOT, state)

    def save(self, *, is_partial: bool = False) -> Any:
        """A copy of the cells, for a slot of the other context; None where there is no memory for it."""
        state = self._memory.save(_SLOT, is_partial=is_partial)
        if state is None or self._n_streams == 1:
            return state
        blocks = self._memory.blocks(_SLOT, is_partial=is_partial)
        return streams.to_many(state, blocks, self._n_streams)

    def close(self) -> None:
        lib.llama_free(self._pointer)
