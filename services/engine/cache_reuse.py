"""Which parts of a slot's cache can be moved to where a new prompt has them (`--cache-reuse`). Pure."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

INT_BYTES = 4


@dataclass(frozen=True, kw_only=True)
class Move:
    """`n` cached tokens from position `source` on go to position `target`, which is before it."""

    source: int
    target: int
    n: int


def find_moves(cached: Sequence[int], prompt: Sequence[int], n_past: int, n_min: int) -> list[Move]:
    """The moves, in order; each makes the reusable prefix longer by its `n`.

    n_past: length of the common prefix. n_min: shorter pieces are not worth it. As llama-server: the
    piece that follows in the prompt is looked for further back in the cache, from front to back.
    """
    moves: list[Move] = []
    haystack = array("i", cached).tobytes()
    source, target = n_past, n_past
    while n_min <= len(prompt) - target:
        source = _find(haystack, prompt[target : target + n_min], source)
        if source < 0:
            break
        n = _n_equal(cached, prompt, source, target)
        moves.append(Move(source=source, target=target, n=n))
        source, target = source + n, target + n
    return moves


def moved(cached: Sequence[int], moves: Sequence[Move], n_past: int) -> list[int]:
    """What the slot holds of the prompt once the moves are made."""
    cells = list(cached[:n_past])
    for move in moves:
        cells += cached[move.source : move.source + move.n]
    return cells


def _find(haystack: bytes, needle: Sequence[int], start: int) -> int:
    """Index of the first occurrence from `start` on, −1 if there is none. Linear, in C."""
    pattern, offset = array("i", needle).tobytes(), start * INT_BYTES
    while (offset := haystack.find(pattern, offset)) >= 0:
        if offset % INT_BYTES == 0:
            return offset // INT_BYTES
        offset += 1
    return -1


def _n_equal(cached: Sequence[int], prompt: Sequence[int], source: int, target: int) -> int:
    n, n_most = 0, min(len(cached) - source, len(prompt) - target)
    while n < n_most and cached[source + n] == prompt[target + n]:
        n += 1
    return n
