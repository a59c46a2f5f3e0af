# pyright: basic
"""Saved slots on their way between caches of one stream and of one for each slot.

llama.cpp writes, for each attention cache of a context, how many streams it has, and of each stream how
many cells of the slot are there and what they hold; and reads only what has as many streams as itself.
A slot has all of its cells in one stream, so the others' zeros can be added or left out.
"""

from typing import Any

import numpy

HEADER = 8
"""Bytes before the first cache: a mark, and the slot's number, which nobody reads."""
_WORD = 4
_EMPTY = 2 * _WORD
"""Bytes of a cache of one stream without cells."""


def n_caches(n_bytes: int, n_bytes_partial: int) -> int:
    """How many attention caches a model without a recurrent state has, of which the last is saved in part.

    Of an empty context, by the sizes of what it saves; 0 for a kind that is not known here.
    """
    one, two = (HEADER + n * _EMPTY for n in (1, 2))
    if n_bytes_partial != one:
        return 0
    return {one: 1, two: 2}.get(n_bytes, 0)


def to_many(state: Any, blocks: tuple[int, ...], n_streams: int) -> Any:
    """What a cache of one stream saved, for one of `n_streams`. uint8 arrays.

    blocks: bytes of each attention cache, in order.
    """
    zeros = numpy.zeros(_WORD * (n_streams - 1), numpy.uint8)
    parts, start = [state[:HEADER]], HEADER
    for size in blocks:
        block = state[start : start + size]
        parts += [_word(n_streams), block[_WORD:], zeros]
        start += size
    return numpy.concatenate(parts)


def to_one(state: Any, n_streams: int) -> Any:
    """What a context saved whose only cache has `n_streams`, for a cache of one."""
    counts = state[HEADER + _WORD :]
    n_before = 0
    while n_before < n_streams - 1 and not counts[n_before * _WORD :][:_WORD].any():
        n_before += 1
    n_behind = n_streams - 1 - n_before
    held = counts[n_before * _WORD : len(counts) - n_behind * _WORD]
    return numpy.concatenate([state[:HEADER], _word(1), held])


def _word(value: int) -> Any:
    return numpy.array([value], "<u4").view(numpy.uint8)
