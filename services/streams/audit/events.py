"""The digest of an archived log, in bounded memory: whatever somebody may have put there. Pure."""

import hashlib
import zlib
from collections.abc import Callable, Iterator
from typing import cast

import msgpack

CODEC = "zlib"
PIECE_BYTES = 1024 * 1024
MAX_ENTRY_BYTES = 64 * 1024 * 1024
"""An entry is one message of the broker, which takes 8 MB."""
UNREADABLE = ""
"""Stands for the digest of what is no log."""


def digest_of_packed(codec: str, data: bytes) -> str:
    """What `archive.digests.events_digest` says of the entries in `data`; UNREADABLE if there are none
    in it. Memory: one entry, however much comes out of `data`."""
    if codec != CODEC:
        return UNREADABLE
    hasher = hashlib.sha256()
    try:
        for seq, entry in _entries(data):
            hasher.update(seq.to_bytes(8, "big") + len(entry).to_bytes(8, "big") + entry)
    except (zlib.error, ValueError, TypeError, OverflowError, msgpack.exceptions.UnpackException):
        return UNREADABLE
    return hasher.hexdigest()


def _entries(data: bytes) -> Iterator[tuple[int, bytes]]:
    unpacker = msgpack.Unpacker(max_buffer_size=MAX_ENTRY_BYTES)
    pieces = _pieces(data)
    n_left = cast(int, _next(unpacker.read_array_header, unpacker.feed, pieces))
    for _ in range(n_left):
        seq, entry = _pair(_next(unpacker.unpack, unpacker.feed, pieces))
        yield seq, entry
    for piece in pieces:
        unpacker.feed(piece)
    try:
        unpacker.skip()
    except msgpack.OutOfData:
        return
    raise ValueError("something stands behind the last entry")


def _next(
    read: Callable[[], object], feed: Callable[[bytes], object], pieces: Iterator[bytes]
) -> object:
    """The next value, once enough has been fed. Raises what the bytes deserve."""
    while True:
        try:
            return read()
        except msgpack.OutOfData:
            piece = next(pieces, None)
            if piece is None:
                raise ValueError("the log ends too early") from None
            feed(piece)


def _pair(value: object) -> tuple[int, bytes]:
    seq, entry = cast("tuple[object, object]", value)
    if not isinstance(seq, int) or not isinstance(entry, bytes):
        raise TypeError("not an entry")
    return seq, entry


def _pieces(data: bytes) -> Iterator[bytes]:
    """What is compressed in `data`, a piece at a time."""
    inflater = zlib.decompressobj()
    rest = data
    while rest and not inflater.eof:
        yield inflater.decompress(rest, PIECE_BYTES)
        rest = inflater.unconsumed_tail
    if not inflater.eof or inflater.unused_data:
        raise ValueError("the log was cut, or something stands behind it")
