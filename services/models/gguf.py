"""The header of a GGUF file as plain values. Reads a little of the file, never the tensors.

Format: the `gguf.md` of ggml. Lists are not kept (a vocabulary has 100,000 entries), only counted.
"""

import struct
from typing import BinaryIO

from services.models.errors import NotGguf

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MAX_PAIRS = 4096
MAX_STRING_BYTES = 1 << 20
MAX_LIST = 1 << 24
MAX_DEPTH = 2
KEPT_STRING_CHARS = 200

STRING, LIST = 8, 9
SCALARS = {
    0: "<B",
    1: "<b",
    2: "<H",
    3: "<h",
    4: "<I",
    5: "<i",
    6: "<f",
    7: "<?",
    10: "<Q",
    11: "<q",
    12: "<d",
}
"""Type number in the file → format of one value, all little-endian."""


def read_header(file: BinaryIO) -> dict[str, object]:
    """The metadata: numbers and flags as they are, long text cut, lists as `{"n": length}`.

    Adds `gguf.version` and `gguf.n_tensors`. Blocks on the file. Raises NotGguf.
    """
    if file.read(4) != MAGIC:
        raise NotGguf("it does not begin as a GGUF file does")
    version, n_tensors, n_pairs = _unpack(file, "<I"), _unpack(file, "<Q"), _unpack(file, "<Q")
    if version not in VERSIONS:
        raise NotGguf(f"GGUF version {version} is not one of {VERSIONS}")
    header: dict[str, object] = {"gguf.version": version, "gguf.n_tensors": n_tensors}
    for _ in range(_bounded(n_pairs, MAX_PAIRS, "metadata entries")):
        key = _string(file)
        header[key] = _value(file, _unpack(file, "<I"), 0)
    return header


def _value(file: BinaryIO, kind: object, depth: int) -> object:
    if kind == STRING:
        return _string(file)[:KEPT_STRING_CHARS]
    if kind == LIST:
        return {"n": _skip_list(file, depth)}
    return _unpack(file, _format(kind))


def _skip_list(file: BinaryIO, depth: int) -> int:
    if depth >= MAX_DEPTH:
        raise NotGguf("lists nested too deep")
    kind = _unpack(file, "<I")
    n = _bounded(_unpack(file, "<Q"), MAX_LIST, "list entries")
    if kind == STRING:
        for _ in range(n):
            _skip(file, _bounded(_unpack(file, "<Q"), MAX_STRING_BYTES, "bytes of text"))
    elif kind == LIST:
        for _ in range(n):
            _skip_list(file, depth + 1)
    else:
        _skip(file, n * struct.calcsize(_format(kind)))
    return n


def _string(file: BinaryIO) -> str:
    n_bytes = _bounded(_unpack(file, "<Q"), MAX_STRING_BYTES, "bytes of text")
    return _read(file, n_bytes).decode("utf-8", "replace")


def _format(kind: object) -> str:
    if not isinstance(kind, int) or kind not in SCALARS:
        raise NotGguf(f"unknown type {kind} of metadata")
    return SCALARS[kind]


def _unpack(file: BinaryIO, layout: str) -> object:
    return struct.unpack(layout, _read(file, struct.calcsize(layout)))[0]


def _read(file: BinaryIO, n_bytes: int) -> bytes:
    data = file.read(n_bytes)
    if len(data) != n_bytes:
        raise NotGguf("it ends within its header")
    return data


def _skip(file: BinaryIO, n_bytes: int) -> None:
    # Reading is faster than seeking here: a seek throws the buffer away.
    _read(file, n_bytes)


def _bounded(value: object, limit: int, what: str) -> int:
    if not isinstance(value, int) or not 0 <= value <= limit:
        raise NotGguf(f"{value} {what}: damaged")
    return value
