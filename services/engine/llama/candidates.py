# pyright: basic
"""Tokens with their logits and probabilities, as llama.cpp's samplers change them in place."""

import ctypes

import numpy as np

from services.engine.llama.library import lib, quick

ROW = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])
"""One candidate, laid out as `llama_token_data`."""
_logits_of = quick(
    "llama_get_logits_ith", [ctypes.c_void_p, ctypes.c_int32], ctypes.POINTER(ctypes.c_float)
)


def read_logits(context: int, row: int, n_vocab: int) -> np.ndarray:
    """A batch row's logits: float32, shape (n_vocab,). A view, good until the next decode."""
    address = ctypes.addressof(_logits_of(context, row).contents)
    return np.frombuffer(memoryview((ctypes.c_float * n_vocab).from_address(address)), np.float32)


class Candidates:
    """All tokens of a vocabulary, filled anew for each choice between them. 0.03 ms per fill.

    array: what samplers are given; they sort, cut and move it, so `rows` is what they left.
    """

    def __init__(self, n_vocab: int) -> None:
        self._table = np.zeros(n_vocab, dtype=ROW)
        self._address = self._table.ctypes.data
        self._ids = np.arange(n_vocab, dtype=np.int32)
        self._first = ctypes.cast(self._address, ctypes.POINTER(lib.llama_token_data))
        self.array = lib.llama_token_data_array(self._first, n_vocab, -1, False)
        self.reference = ctypes.byref(self.array)

    def fill(self, context: int, row: int) -> None:
        """All tokens, with the logits of a batch row."""
        self.fill_with(read_logits(context, row, len(self._table)))

    def fill_with(self, logits: np.ndarray) -> None:
        """All tokens, with these logits (float32, one per token of the vocabulary)."""
        self._table["id"] = self._ids
        self._table["logit"] = logits
        array = self.array
        array.data, array.size, array.selected, array.sorted = self._first, len(logits), -1, False

    def force(self, token: int) -> None:
        """Leave one token possible; before anything has changed the order."""
        logit = self._table["logit"][token]
        self._table["logit"] = -np.inf
        self._table["logit"][token] = logit

    def keep(self, ids: np.ndarray) -> None:
        """Leave these tokens (ascending) possible; before anything has changed the order.

        The others stay there, as in llama-server: some samplers look at how many there are.
        """
        logits = self._table["logit"][ids]
        self._table["logit"] = -np.inf
        self._table["logit"][ids] = logits

    def only(self, ids: np.ndarray) -> None:
        """Leave nothing but these tokens (ascending); before anything has changed the order."""
        self.put(self._table[ids])

    @property
    def size(self) -> int:
        return self.array.size

    @property
    def rows(self) -> np.ndarray:
        """The candidates that are left, in their present order; a view."""
        address = ctypes.cast(self.array.data, ctypes.c_void_p).value or self._address
        first = (address - self._address) // ROW.itemsize
        return self._table[first : first + self.array.size]

    @property
    def chosen(self) -> int:
        """The token that the last sampler selected. Raises ValueError where it found none."""
        if not 0 <= self.array.selected < self.array.size:
            raise ValueError("the samplers left nothing to choose")
        return self.array.data[self.array.selected].id

    def put(self, rows: np.ndarray) -> None:
        """Replace what is left by at most as many other rows."""
        self.rows[: len(rows)] = rows
        self.array.size = len(rows)
