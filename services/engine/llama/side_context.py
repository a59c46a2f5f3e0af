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

    memory: the slot's, empty. n_streams: of the context that the cells come from and go to. max_piece:
    tokens of one call, at most. is_usable: False where cells could not come and go.
    """

    def __init__(self, pointer: int, memory: SlotMemory, *, n_streams: int, max_piece: int) -> None:
        self._pointer = pointer
        self._memory = memory
        self._n_streams = n_streams
        self._batch = LlamaBatch(max_piece)
        whole, partial = memory.size(_SLOT), memory.size(_SLOT, is_partial=True)
        if memory.is_rigid and whole == partial:
            self._n_streams = 1  # a recurrent state alone has none
        self._n_caches = 0 if memory.is_rigid else streams.n_caches(whole, partial)
        self.is_usable = self._n_streams == 1 or self._n_caches > 0

    def set_threads(self, n_threads: int) -> None:
        lib.llama_set_n_threads(self._pointer, n_threads, n_threads)

    def decode(self, ids: Sequence[int], start: int) -> int:
        """Decode tokens from position `start` on; DECODED or another number. The GIL is released."""
        part = Part(slot=_SLOT, start=start, ids=ids, is_sampled=False, is_prompt=True)
        result = lib.llama_decode(self._pointer, self._batch.fill(Batch(parts=(part,))))
        lib.llama_synchronize(self._pointer)
        return result

    def load(self, state: Any) -> bool:
        """Begin with cells that a slot of the other context held; False where that cannot be."""
        if self._n_streams > 1:
            if self._n_caches > 1:
                return False  # where the second one begins is known to whoever saved it
            state = streams.to_one(state, self._n_streams)
        return self._memory.load(_SLOT, state)

    def save(self, *, is_partial: bool = False) -> Any:
        """A copy of the cells, for a slot of the other context; None where there is no memory for it."""
        state = self._memory.save(_SLOT, is_partial=is_partial)
        if state is None or self._n_streams == 1:
            return state
        n_last = self._memory.size(_SLOT, is_partial=True) - streams.HEADER
        n_first = len(state) - streams.HEADER - n_last
        blocks = (n_first, n_last) if n_first else (n_last,)
        return streams.to_many(state, blocks, self._n_streams)

    def close(self) -> None:
        lib.llama_free(self._pointer)
