# pyright: basic
"""The sampler `infill`: which candidates may follow when text is filled in. Pure but for its pieces.

llama.cpp's own takes time with the square of the candidates, and ends the process at a piece of more
than 512 bytes; so this one is ours, with the same results.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence

import numpy as np

_MIN_P = np.float32(0.2)


def cut(
    rows: np.ndarray, is_end: np.ndarray, piece_of: Callable[[int], bytes], end_id: int
) -> np.ndarray:
    """The candidates to keep.

    rows: candidates in falling order, `p` their probabilities. is_end: per token of the vocabulary.
    end_id: the token for "nothing fits", or −1.
    """
    ends = is_end[rows["id"]]
    if _is_end_likely(rows["p"], ends):
        return rows[ends]
    rows = rows.copy()
    _merge_prefixes(rows, [piece_of(token) for token in rows["id"].tolist()])
    kept = rows[(rows["p"] >= _MIN_P) | ends]
    ends = is_end[kept["id"]]
    n_text = len(kept) - int(ends.sum())
    if n_text == 0:
        return _only_end(rows, end_id)
    scaled = kept["p"] / _sum(kept["p"])
    return kept[(scaled >= np.float32(1.0 / (n_text + 1))) | ends]


def _is_end_likely(p: np.ndarray, ends: np.ndarray) -> bool:
    return bool(np.float32(3) * _sum(p[ends]) * np.float32(len(p)) > _sum(p[~ends]))


def _sum(p: np.ndarray) -> np.float32:
    """One after the other, as C does it; numpy's own sum goes by pairs."""
    return np.add.accumulate(p)[-1] if len(p) else np.float32(0)


def _only_end(rows: np.ndarray, end_id: int) -> np.ndarray:
    only = rows[:1]
    if end_id >= 0:
        only["id"], only["logit"] = end_id, 1.0
    return only


def _merge_prefixes(rows: np.ndarray, pieces: Sequence[bytes]) -> None:
    """Where one piece begins another, the likelier of the two gets the probability of both."""
    p = rows["p"].copy()
    is_alive = np.isfinite(rows["logit"])
    order = sorted(range(len(pieces)), key=lambda i: (pieces[i], i))
    in_order = [pieces[i] for i in order]
    for i, piece in enumerate(pieces):
        if piece and is_alive[i]:
            for other in _continuations(i, piece, order, in_order):
                if is_alive[other]:
                    kept, gone = (other, i) if p[other] > p[i] else (i, other)
                    p[kept] += p[gone]
                    p[gone], is_alive[gone] = 0, False
                    if gone == i:
                        break
    rows["p"] = p
    rows["logit"][~is_alive] = -np.inf


def _continuations(
    i: int, piece: bytes, order: Sequence[int], in_order: Sequence[bytes]
) -> Iterator[int]:
    """The other pieces that begin with this one, in the order of the candidates."""
    first = bisect_left(in_order, piece)
    last = first
    while last < len(order) and in_order[last].startswith(piece):
        last += 1
    return iter(sorted(other for other in order[first:last] if other != i))
