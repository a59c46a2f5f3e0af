# pyright: basic
"""The KV cache of a llama context: the scheduler's `Memory`, and slots in files. One thread."""

import ctypes
import os
import secrets
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy

from services.engine.errors import SlotFileError
from services.engine.llama.library import LOG, lib, quick

WHOLE, PARTIAL = 0, 1
PACKED, VERSION = -1, 1
"""How llama-server's slot files begin: no token, a version; older ones begin with the first token."""

_P, _I = ctypes.c_void_p, ctypes.c_int32
_remove = quick("llama_memory_seq_rm", [_P, _I, _I, _I], ctypes.c_bool)
_copy = quick("llama_memory_seq_cp", [_P, _I, _I, _I, _I], None)
_add = quick("llama_memory_seq_add", [_P, _I, _I, _I, _I], None)
_position_min = quick("llama_memory_seq_pos_min", [_P, _I], _I)
_position_max = quick("llama_memory_seq_pos_max", [_P, _I], _I)


class SlotMemory:
    """See `Memory`. context: a llama_context. n_window: cells that a sliding window keeps, 0 if all are
    kept. is_rigid: cells are a recurrent state, which cannot be cut. can_move: False where llama.cpp
    must not be asked to."""

    def __init__(
        self, context: int, *, n_window: int, is_rigid: bool, can_move: bool = True
    ) -> None:
        self._context = context
        self._memory = lib.llama_get_memory(context)
        self._n_window = n_window
        self.is_rigid = is_rigid
        self.can_move: bool = can_move and bool(lib.llama_memory_can_shift(self._memory))
        self.needs_checkpoints = n_window > 0 or is_rigid
        self.is_settled = True

    def can_keep(self, slot: int, n_tokens: int) -> bool:
        if self.is_rigid:
            return _position_max(self._memory, slot) < n_tokens
        if self._n_window == 0:
            return True
        return _position_min(self._memory, slot) <= max(0, n_tokens - self._n_window)

    def keep(self, slot: int, n_tokens: int) -> int:
        is_possible = n_tokens > 0 and self.can_keep(slot, n_tokens)
        if is_possible and _remove(self._memory, slot, n_tokens, -1):
            return n_tokens
        _remove(self._memory, slot, -1, -1)
        return 0

    def copy(self, source: int, target: int) -> None:
        _copy(self._memory, source, target, -1, -1)

    def move(self, slot: int, source: int, target: int, n: int) -> None:
        _remove(self._memory, slot, target, source)
        _add(self._memory, slot, source, source + n, target - source)
        self.is_settled = False  # llama.cpp turns the keys when it decodes next

    def on_decoded(self) -> None:
        """A batch was decoded: whatever was moved is where it belongs."""
        self.is_settled = True

    def n_bytes(self, slot: int) -> int:
        return self.size(slot)

    def save(self, slot: int, *, is_partial: bool = False) -> Any:
        if not self.is_settled:
            return None
        flags, size = PARTIAL if is_partial else WHOLE, self.size(slot, is_partial=is_partial)
        try:
            data = numpy.empty(size, numpy.uint8)
        except MemoryError:
            return None
        n = lib.llama_state_seq_get_data_ext(self._context, _pointer(data), size, slot, flags)
        return data if n == size else None

    def load(self, slot: int, state: Any, *, is_partial: bool = False) -> bool:
        flags, size = PARTIAL if is_partial else WHOLE, state.nbytes
        n = lib.llama_state_seq_set_data_ext(self._context, _pointer(state), size, slot, flags)
        if n != size:
            _remove(self._memory, slot, -1, -1)
        return n == size

    def size(self, slot: int, *, is_partial: bool = False) -> int:
        """Bytes that `save` gives."""
        flags = PARTIAL if is_partial else WHOLE
        return lib.llama_state_seq_get_size_ext(self._context, slot, flags)

    def save_file(self, slot: int, path: str, tokens: Sequence[int]) -> int:
        """Write a slot's tokens and cells; the bytes written. A file of that name is replaced at once.

        Raises SlotFileError.
        """
        words = array("i", (PACKED, VERSION, len(tokens), *tokens, 0))  # 0 pictures
        part = Path(path).with_name(f".{secrets.token_hex(8)}.part")
        values = (_I * len(words)).from_buffer(words)
        n_bytes = lib.llama_state_seq_save_file(
            self._context, os.fsencode(part), slot, values, len(words)
        )
        try:
            if not n_bytes:
                raise SlotFileError("Unable to save slot")
            part.replace(path)
        except OSError as error:
            raise SlotFileError(f"Unable to save slot: {error.strerror}") from error
        finally:
            part.unlink(missing_ok=True)
        return n_bytes

    def load_file(self, slot: int, path: str) -> tuple[list[int], int]:
        """Put what `save_file` wrote into a slot: its tokens, the bytes read. Raises SlotFileError."""
        n_words = ctypes.c_size_t(0)
        name, count = os.fsencode(path), ctypes.byref(n_words)
        load = lib.llama_state_seq_load_file
        if not load(self._context, name, slot, None, 0, count):
            raise SlotFileError(_reason(path))
        words = (_I * max(1, n_words.value))()
        n_bytes = load(self._context, name, slot, words, len(words), count)
        if not n_bytes:
            raise SlotFileError(_reason(path))
        tokens = _unpacked(words[: n_words.value])
        if _position_max(self._memory, slot) + 1 != len(tokens):
            raise SlotFileError("its tokens and its cells do not belong together")
        return tokens, n_bytes


def _reason(path: str) -> str:
    if not Path(path).is_file():
        return "there is no such file"
    return f"no room in the KV cache, or not a file of this model ({LOG.last_error()})"


def _unpacked(words: list[int]) -> list[int]:
    if not words or words[0] != PACKED:
        return words  # as older llama-servers write
    if len(words) < 4 or words[1] != VERSION or not 0 <= words[2] <= len(words) - 4:
        raise SlotFileError("unknown version of slot file")
    if words[3 + words[2]]:
        raise SlotFileError("Cannot restore media tokens without an mmproj")
    return words[3 : 3 + words[2]]


def _pointer(data: Any) -> Any:
    return data.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
