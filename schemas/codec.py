"""Messages to and from MessagePack bytes. Thread-safe, no state.

Typed messages go through msgspec's encoder and decoders, which write and read the same bytes as
`msgpack` in a fraction of the time; `msgpack` reads what has no type yet.
"""

from functools import lru_cache
from typing import Any, TypeVar

import msgpack
import msgspec

from schemas.errors import SchemaError
from schemas.struct import Message

T = TypeVar("T")
MAX_NESTING = 1024
_ENCODER = msgspec.msgpack.Encoder()


def to_builtins(message: object) -> object:
    """`message` as maps, lists, strings, numbers and bytes."""
    return msgspec.to_builtins(message, builtin_types=(bytes,))


def pack(value: object) -> bytes:
    """Builtin values as MessagePack bytes."""
    packed = msgpack.packb(value, use_bin_type=True)
    assert isinstance(packed, bytes)
    return packed


def unpack(data: bytes) -> object:
    """MessagePack bytes as builtin values. Raises SchemaError for anything else."""
    try:
        return msgpack.unpackb(data, raw=False, strict_map_key=False)
    except Exception as error:  # msgpack raises several unrelated classes for bad input
        raise SchemaError(f"not MessagePack: {error}") from error


def convert(value: object, kind: type[T]) -> T:
    """Builtin values as an instance of `kind`. Raises SchemaError where they do not fit."""
    try:
        return msgspec.convert(value, kind)
    except (msgspec.ValidationError, RecursionError) as error:
        raise SchemaError(f"not a {getattr(kind, '__name__', kind)}: {error}") from error


def encode(message: "Message | list[Message]") -> bytes:
    return _ENCODER.encode(message)


def decode(data: bytes, kind: type[T]) -> T:
    """Bytes as one message of `kind`. Raises SchemaError."""
    try:
        return decoder(kind).decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SchemaError(f"not a {getattr(kind, '__name__', kind)}: {error}") from error


@lru_cache(maxsize=256)
def decoder(kind: Any) -> "msgspec.msgpack.Decoder[Any]":
    """The decoder of a type. It raises msgspec.DecodeError, UnicodeDecodeError or RecursionError."""
    return msgspec.msgpack.Decoder(kind)
