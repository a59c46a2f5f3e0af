"""The header of a GGUF file: metadata, tensor shapes, where the weights begin. Pure Python, no model.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (little-endian, versions 2 and 3).
Arrays are counted, not kept: a vocabulary's 400,000 strings are skipped in about 0.2 s.
"""

import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from services.engine.errors import ModelNotLoadable

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MAX_COUNT = 1 << 24
MAX_STRING_BYTES = 1 << 26
MAX_ARRAY_DEPTH = 4
_STRING, _ARRAY, _BOOL = 8, 9, 7
_SCALARS = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<B", 10: "<Q", 11: "<q",
    12: "<d",
}  # fmt: skip

Value = str | int | float | bool | None


@dataclass(frozen=True, kw_only=True)
class Gguf:
    """metadata: scalar values by key; an array stands there as its length (int).

    n_params: weights in all tensors. n_header_bytes: magic to the end of the tensor infos.
    n_file_bytes: of the whole file.
    """

    metadata: dict[str, Value]
    n_params: int
    n_tensors: int
    n_header_bytes: int
    n_file_bytes: int

    def text(self, key: str) -> str:
        """A string value, empty when absent or of another type."""
        value = self.metadata.get(key)
        return value if isinstance(value, str) else ""

    def number(self, key: str) -> int:
        """A whole number, 0 when absent or of another type."""
        value = self.metadata.get(key)
        return value if isinstance(value, int) else 0

    @property
    def architecture(self) -> str:
        return self.text("general.architecture")

    @property
    def n_ctx_train(self) -> int:
        """Tokens that the model was trained on, 0 when it does not say."""
        return self.number(f"{self.architecture}.context_length")

    @property
    def n_embd(self) -> int:
        return self.number(f"{self.architecture}.embedding_length")


def read_gguf(path: str) -> Gguf:
    """Read the header of a GGUF file. Blocks for file I/O (some 100 ms for a large vocabulary).

    Raises ModelNotLoadable when the file is missing, no GGUF, or damaged.
    """
    try:
        with Path(path).open("rb") as file:
            return _read(file, Path(path).stat().st_size)
    except OSError as error:
        raise ModelNotLoadable(f"cannot read the model file {path}: {error.strerror}") from error
    except (struct.error, ValueError, OverflowError) as error:
        raise ModelNotLoadable(f"{path} is not a GGUF model file: {error}") from error


def _read(file: BinaryIO, n_file_bytes: int) -> Gguf:
    if file.read(4) != MAGIC:
        raise ValueError("it does not begin with GGUF")
    version, n_tensors, n_pairs = struct.unpack("<IQQ", file.read(20))
    if version not in VERSIONS:
        raise ValueError(f"version {version} is unknown")
    metadata = dict(_pair(file) for _ in range(_count(n_pairs)))
    n_params = sum(_tensor(file) for _ in range(_count(n_tensors)))
    return Gguf(
        metadata=metadata,
        n_params=n_params,
        n_tensors=n_tensors,
        n_header_bytes=file.tell(),
        n_file_bytes=n_file_bytes,
    )


def _count(n: int) -> int:
    if n > MAX_COUNT:
        raise ValueError(f"{n} entries cannot be")
    return n


def _pair(file: BinaryIO) -> tuple[str, Value]:
    key = _string(file)
    return key, _value(file, _number(file, "<I"))


def _value(file: BinaryIO, kind: int, depth: int = 0) -> Value:
    if kind == _STRING:
        return _string(file)
    if kind == _ARRAY:
        return _skip_array(file, depth)
    if kind not in _SCALARS:
        raise ValueError(f"value type {kind} is unknown")
    (value,) = _unpack(file, _SCALARS[kind])
    return bool(value) if kind == _BOOL else value


def _skip_array(file: BinaryIO, depth: int) -> int:
    """Its length; the file stands behind it."""
    kind, n = _number(file, "<I"), _count(_number(file, "<Q"))
    if kind in _SCALARS:
        _skip(file, n * struct.calcsize(_SCALARS[kind]))
    elif kind == _STRING:
        for _ in range(n):
            _skip(file, _number(file, "<Q"))
    elif depth < MAX_ARRAY_DEPTH:
        for _ in range(n):
            _value(file, kind, depth + 1)
    else:
        raise ValueError("arrays are nested too deeply")
    return n


def _tensor(file: BinaryIO) -> int:
    """Number of weights of the next tensor; the file stands behind its info."""
    _string(file)
    n_dimensions = _number(file, "<I")
    if n_dimensions > 8:
        raise ValueError(f"a tensor with {n_dimensions} dimensions cannot be")
    shape = _unpack(file, f"<{n_dimensions}Q")
    _skip(file, 12)
    return math.prod(shape)


def _string(file: BinaryIO) -> str:
    n = _number(file, "<Q")
    if n > MAX_STRING_BYTES:
        raise ValueError(f"a string of {n} bytes cannot be")
    return file.read(n).decode("utf-8", "replace")


def _skip(file: BinaryIO, n: int) -> None:
    if n > MAX_STRING_BYTES:
        raise ValueError(f"{n} bytes cannot be skipped")
    if len(file.read(n)) != n:
        raise ValueError("it ends too early")


def _number(file: BinaryIO, layout: str) -> int:
    return int(_unpack(file, layout)[0])


def _unpack(file: BinaryIO, layout: str) -> tuple[Any, ...]:
    data = file.read(struct.calcsize(layout))
    return struct.unpack(layout, data)
