"""Saved slots between caches of one stream and of several: the words in front, nothing else."""

import numpy
import pytest

from services.engine.llama.streams import n_caches, to_many, to_one

HEAD = b"magic###"


def array(*parts: bytes) -> numpy.ndarray:
    return numpy.frombuffer(b"".join(parts), numpy.uint8)


def word(n: int) -> bytes:
    return n.to_bytes(4, "little")


CELLS = word(2) + b"what two cells hold"


def test_one_cache() -> None:
    one = array(HEAD, word(1), CELLS)
    many = array(HEAD, word(3), CELLS, word(0), word(0))
    assert to_many(one, (len(one) - len(HEAD),), 3).tobytes() == many.tobytes()


def test_two_caches() -> None:
    first, second = word(1) + CELLS, word(1) + word(0)
    many = to_many(array(HEAD, first, second), (len(first), len(second)), 2).tobytes()
    assert many == HEAD + word(2) + CELLS + word(0) + word(2) + word(0) + word(0)


@pytest.mark.parametrize(
    ("n_bytes", "n_bytes_partial", "expected"),
    [(16, 16, 1), (24, 16, 2), (24, 24, 0), (20, 12, 0), (32, 16, 0), (16, 12, 0)],
)
def test_only_known_kinds_are_rewritten(n_bytes: int, n_bytes_partial: int, expected: int) -> None:
    """One cache; one that is saved in part after one that is not; all else is something else."""
    assert n_caches(n_bytes, n_bytes_partial) == expected


@pytest.mark.parametrize("slot", range(4))
def test_back_from_any_slot(slot: int) -> None:
    zeros = [word(0)] * 4
    zeros[slot] = CELLS
    many = array(HEAD, word(4), *zeros)
    assert to_one(many, 4).tobytes() == HEAD + word(1) + CELLS


def test_an_empty_slot() -> None:
    many = array(HEAD, word(4), *[word(0)] * 4)
    assert to_one(many, 4).tobytes() == HEAD + word(1) + word(0)
