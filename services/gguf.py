"""The header of a GGUF file: metadata and tensor shapes. Blocks on the file; no model, no C.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (little-endian, versions 2 and 3).
Arrays are counted, not kept: a vocabulary's 400,000 strings are skipped in about 0.2 s.
"""

import math
import struct
from dataclasses import dataclass
from typing import Any, BinaryIO

from schemas.errors import LlamatapeError

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MAX_COUNT = 1 << 24
MAX_STRING_BYTES = 1 << 26
MAX_DIMENSIONS = 8
MAX_DEPTH = 4
_BOOL, _STRING, _ARRAY = 7, 8, 9
_SCALARS = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<B", 10: "<Q", 11: "<q",
    12: "<d",
}  # fmt: skip
_TYPE_AND_OFFSET_BYTES = 12


class NotGguf(LlamatapeError):
    """The file is not a GGUF model, or is damaged."""


@dataclass(frozen=True)
class Array:
    """In the place of an array of n values."""

    n: int


Value = str | int | float | bool | Array | None


@dataclass(frozen=True, kw_only=True)
class Header:
    """What a file begins with. metadata: by key."""

    version: int
    n_tensors: int
    metadata: dict[str, Value]


def read_header(file: BinaryIO) -> Header:
    """Everything before the tensor infos, where the file stands then. Raises NotGguf, OSError."""
    if _read(file, len(MAGIC)) != MAGIC:
        raise NotGguf("it does not begin with GGUF")
    version, n_tensors, n_pairs = _unpack(file, "<IQQ")
    if version not in VERSIONS:
        raise NotGguf(f"version {version} is unknown")
    metadata = dict(_pair(file) for _ in range(_count(n_pairs)))
    return Header(version=version, n_tensors=_count(n_tensors), metadata=metadata)


def count_weights(file: BinaryIO, n_tensors: int) -> int:
    """Weights in all tensors; right after `read_header`. The file stands behind their infos then.
    Raises NotGguf, OSError."""
    return sum(_tensor(file) for _ in range(n_tensors))


def _pair(file: BinaryIO) -> tuple[str, Value]:
    key = _string(file)
    return key, _value(file, _number(file, "<I"))


def _value(file: BinaryIO, kind: int, depth: int = 0) -> Value:
    if kind == _STRING:
        return _string(file)
    if kind == _ARRAY:
        return _skip_array(file, depth)
    value = _number(file, _layout(kind))
    return bool(value) if kind == _BOOL else value


def _skip_array(file: BinaryIO, depth: int) -> Array:
    if depth >= MAX_DEPTH:
        raise NotGguf("arrays are nested too deeply")
    kind, n = _number(file, "<I"), _count(_number(file, "<Q"))
    if kind == _STRING:
        for _ in range(n):
            _read(file, _length(file))
    elif kind == _ARRAY:
        for _ in range(n):
            _skip_array(file, depth + 1)
    else:
        _read(file, n * struct.calcsize(_layout(kind)))
    return Array(n)


def _tensor(file: BinaryIO) -> int:
    _string(file)
    n_dimensions = _number(file, "<I")
    if n_dimensions > MAX_DIMENSIONS:
        raise NotGguf(f"a tensor with {n_dimensions} dimensions cannot be")
    shape = _unpack(file, f"<{n_dimensions}Q")
    _read(file, _TYPE_AND_OFFSET_BYTES)
    return math.prod(shape)


def _string(file: BinaryIO) -> str:
    return _read(file, _length(file)).decode("utf-8", "replace")


def _length(file: BinaryIO) -> int:
    n: int = _number(file, "<Q")
    if n > MAX_STRING_BYTES:
        raise NotGguf(f"a string of {n} bytes cannot be")
    return n


def _count(n: int) -> int:
    if n > MAX_COUNT:
        raise NotGguf(f"{n} entries cannot be")
    return n


def _layout(kind: int) -> str:
    if kind not in _SCALARS:
        raise NotGguf(f"value type {kind} is unknown")
    return _SCALARS[kind]


def _number(file: BinaryIO, layout: str) -> Any:
    return _unpack(file, layout)[0]


def _unpack(file: BinaryIO, layout: str) -> tuple[Any, ...]:
    return struct.unpack(layout, _read(file, struct.calcsize(layout)))


def _read(file: BinaryIO, n_bytes: int) -> bytes:
    # What is skipped is read, too: a seek throws the buffer away, and is slower.
    data = file.read(n_bytes)
    if len(data) != n_bytes:
        raise NotGguf("it ends within its header")
    return data
