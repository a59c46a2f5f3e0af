"""The digest of a packed log: the archive's own, and nothing at all for what is no log."""

import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import codec
from services.streams.archive.digests import events_digest
from services.streams.audit.events import CODEC, UNREADABLE, digest_of_packed

ENTRIES = [[5, b"abc"], [9, b"x" * 3_000_000], [10, b""]]
PACKED = zlib.compress(codec.pack(ENTRIES))


@given(st.lists(st.tuples(st.integers(0, 2**63), st.binary(max_size=200)), max_size=20))
def test_it_is_the_archives(entries: list[tuple[int, bytes]]) -> None:
    packed = zlib.compress(codec.pack([list(entry) for entry in entries]))
    assert digest_of_packed(CODEC, packed) == events_digest(entries)


def test_large_entries_too() -> None:
    assert digest_of_packed(CODEC, PACKED) == events_digest(ENTRIES)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"x",
        PACKED[:-5],
        PACKED + b"x",
        zlib.compress(codec.pack(ENTRIES) + b"\x01"),
        zlib.compress(codec.pack(ENTRIES)[:-1]),
        zlib.compress(codec.pack([[1, 2]])),
        zlib.compress(codec.pack([[1]])),
        zlib.compress(codec.pack([[-1, b"a"]])),
        zlib.compress(codec.pack({"a": 1})),
        zlib.compress(codec.pack(7)),
        zlib.compress(b""),
        zlib.compress(b"\xdd\xff\xff\xff\xff"),
    ],
)
def test_what_is_no_log(data: bytes) -> None:
    assert digest_of_packed(CODEC, data) == UNREADABLE


def test_another_codec() -> None:
    assert digest_of_packed("zstd", PACKED) == UNREADABLE


@given(st.binary(max_size=300))
def test_nothing_makes_it_fail(data: bytes) -> None:
    for packed in (data, zlib.compress(data)):
        digest_of_packed(CODEC, packed)


def test_a_bomb_does_not_fill_the_memory() -> None:
    squeezed = zlib.compressobj()
    bomb = squeezed.compress(b"\xdc\x00\x40")  # 64 entries of 8 MB of nothing
    entry = codec.pack([1, bytes(8_000_000)])
    bomb += b"".join(squeezed.compress(entry) for _ in range(64)) + squeezed.flush()
    tracemalloc.start()
    try:
        assert digest_of_packed(CODEC, bomb) != UNREADABLE
        assert tracemalloc.get_traced_memory()[1] < 64_000_000
    finally:
        tracemalloc.stop()
