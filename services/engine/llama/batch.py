# pyright: basic
"""The one `llama_batch` of a decoder: its arrays are allocated once and refilled for every call."""

import ctypes
from typing import Any

from services.engine.batches import Batch
from services.engine.llama.library import lib


class LlamaBatch:
    """Room for `n_rows` tokens. int32 ids and positions, one sequence per row."""

    def __init__(self, n_rows: int) -> None:
        self._ids = (ctypes.c_int32 * n_rows)()
        self._positions = (ctypes.c_int32 * n_rows)()
        self._sequences = (ctypes.c_int32 * n_rows)()
        self._outputs = (ctypes.c_int8 * n_rows)()
        self._n_sequences = (ctypes.c_int32 * n_rows)(*([1] * n_rows))
        self._pointers = (ctypes.POINTER(ctypes.c_int32) * n_rows)()
        size = ctypes.sizeof(ctypes.c_int32)
        start = ctypes.addressof(self._sequences)
        for row in range(n_rows):
            address = ctypes.c_void_p(start + row * size)
            self._pointers[row] = ctypes.cast(address, ctypes.POINTER(ctypes.c_int32))
        self.struct = self._make_struct()

    def _make_struct(self) -> Any:
        batch = lib.llama_batch()
        batch.token = ctypes.cast(self._ids, ctypes.POINTER(ctypes.c_int32))
        batch.embd = None
        batch.pos = ctypes.cast(self._positions, ctypes.POINTER(ctypes.c_int32))
        batch.n_seq_id = ctypes.cast(self._n_sequences, ctypes.POINTER(ctypes.c_int32))
        batch.seq_id = ctypes.cast(self._pointers, ctypes.POINTER(ctypes.POINTER(ctypes.c_int32)))
        batch.logits = ctypes.cast(self._outputs, ctypes.POINTER(ctypes.c_int8))
        return batch

    def fill(self, batch: Batch) -> Any:
        """The struct for `batch`; valid until the next fill."""
        row = 0
        for part in batch.parts:
            n = len(part.ids)
            end = row + n
            self._ids[row:end] = part.ids
            self._positions[row:end] = range(part.start, part.start + n)
            self._sequences[row:end] = (part.slot,) * n
            if n > 1:
                self._outputs[row:end] = (0,) * n
            self._outputs[end - 1] = part.is_sampled
            row = end
        self.struct.n_tokens = row
        return self.struct
