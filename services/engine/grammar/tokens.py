"""Which tokens of a vocabulary a state allows.

The pieces are sorted, so that tokens with a common beginning lie together and are tried together;
in states that most characters lead back to (inside a string) numpy decides most tokens at once.
Single-threaded.
"""

from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from services.engine.grammar.automaton import SHORT_BYTES, Automaton, State

N_TOGETHER = 24
"""Ranges of fewer tokens are walked one by one."""
Ids = npt.NDArray[np.int32]
Flags = npt.NDArray[np.bool_]
Range = tuple[int, int, int, State]
"""Tokens from, to, how many bytes they have in common, and the state after those."""


class TokenTable:
    """The pieces of a vocabulary, by id, control tokens by their names; end_ids: never text.

    Empty pieces and those with a zero byte are never allowed (as llama.cpp).
    """

    def __init__(self, pieces: Sequence[bytes], end_ids: Collection[int]) -> None:
        ends = frozenset(end_ids)
        found = [
            (piece, token)
            for token, piece in enumerate(pieces)
            if piece and token not in ends and 0 not in piece
        ]
        found.sort()
        self.pieces = pieces
        self.end_ids = ends
        self._sorted = [piece for piece, _ in found]
        self._ids = np.array([token for _, token in found], dtype=np.int32)
        self._bytes = np.frombuffer(b"".join(self._sorted), dtype=np.uint8)
        lengths = np.array([len(piece) for piece in self._sorted], dtype=np.int64)
        self._offsets = np.cumsum(lengths) - lengths
        self._lengths = lengths
        self._invalid = _invalid_utf8(self._sorted, len(self._bytes))
        self._last_other: dict[bytes, npt.NDArray[np.int64]] = {}

        by_id = np.array([len(piece) for piece in pieces])
        self._is_long = by_id > SHORT_BYTES
        self._long = [token for _, token in found if self._is_long[token]]

    @property
    def n_vocab(self) -> int:
        return len(self.pieces)

    def of_text(self, automaton: Automaton, state: State) -> Ids:
        """Ids, ascending, of the tokens whose text may come next. Raises GrammarTooComplex."""
        flags = np.zeros(len(self._sorted), dtype=bool)
        todo: list[Range] = [(0, len(self._sorted), 0, state)]
        while todo:
            first, end, depth, at = todo.pop()
            if end - first < N_TOGETHER:
                self._walk(automaton, flags, (first, end, depth, at))
            elif not self._decide_at_once(automaton, flags, (first, end, depth, at)):
                todo += self._parts(automaton, flags, (first, end, depth, at))
        return np.sort(self._ids[flags])

    def with_long(self, automaton: Automaton, state: State, ids: Ids) -> Ids:
        """The answer for a state, from that for its shortened one: the long tokens are tried again.

        Raises GrammarTooComplex.
        """
        long = [t for t in self._long if automaton.feed(state, self.pieces[t]) is not None]
        return np.sort(np.concatenate([ids[~self._is_long[ids]], np.array(long, dtype=np.int32)]))

    def named(self, automaton: Automaton, state: State) -> Ids:
        """Ids, ascending, of the tokens that may come next because the grammar names them as such."""
        wanted, excluded = automaton.named(state)
        ids = wanted if excluded is None else wanted | (set(range(self.n_vocab)) - excluded)
        found = (token for token in ids - self.end_ids if token < self.n_vocab)
        return np.array(sorted(found), dtype=np.int32)

    def _walk(self, automaton: Automaton, flags: Flags, part: Range) -> None:
        first, end, depth, state = part
        for i in range(first, end):
            if not flags[i]:
                flags[i] = automaton.feed(state, self._sorted[i][depth:]) is not None

    def _decide_at_once(self, automaton: Automaton, flags: Flags, part: Range) -> bool:
        """Allow those whose further bytes all lead back to the state; whether that is all of them."""
        first, end, depth, state = part
        if not _may_loop(automaton, state):
            return False
        last_other = self._last_others(automaton.loops(state))[first:end]
        is_allowed = last_other < depth
        flags[first:end] |= is_allowed
        return bool(is_allowed.all())

    def _last_others(self, loops: bytes) -> npt.NDArray[np.int64]:
        """By token: the index of the last byte that does not lead back, −1 if there is none."""
        if loops not in self._last_other:
            is_other = ~np.frombuffer(loops, dtype=bool)[self._bytes] | self._invalid
            places = np.where(is_other, np.arange(len(self._bytes)), -1)
            latest = np.maximum.accumulate(places)[self._offsets + self._lengths - 1]
            self._last_other[loops] = np.maximum(latest - self._offsets, -1)
        return self._last_other[loops]

    def _parts(self, automaton: Automaton, flags: Flags, part: Range) -> Iterator[Range]:
        """The ranges of tokens by their next byte, where that is allowed."""
        first, end, depth, state = part
        while first < end and self._lengths[first] == depth:
            flags[first] = True
            first += 1
        column = self._bytes[self._offsets[first:end] + depth]
        cuts = np.flatnonzero(np.diff(column)) + first + 1
        edges = [first, *cuts.tolist(), end] if first < end else []
        for i, j in pairwise(edges):
            after = automaton.step(state, self._sorted[i][depth])
            if after is not None:
                yield i, j, depth + 1, after


def _may_loop(automaton: Automaton, state: State) -> bool:
    """A quick look whether letters lead back."""
    if state.key.n_missing:
        return False
    return automaton.step(state, ord("a")) is state or automaton.step(state, ord("0")) is state


def _invalid_utf8(pieces: Sequence[bytes], n_bytes: int) -> Flags:
    """By byte of all pieces: whether it is not part of a (perhaps unfinished) character."""
    flags = np.zeros(n_bytes, dtype=bool)
    at = 0
    for piece in pieces:
        if not piece.isascii():
            for i in _strays(piece):
                flags[at + i] = True
        at += len(piece)
    return flags


def _strays(piece: bytes) -> Iterator[int]:
    i = 0
    while i < len(piece):
        n = _length(piece[i])
        is_surrogate = piece[i] == 0xED and piece[i + 1 : i + 2] >= b"\xa0"
        if n == 0 or is_surrogate or any(byte >> 6 != 0b10 for byte in piece[i + 1 : i + n]):
            yield i
            n = 1
        i += n


def _length(byte: int) -> int:
    """Bytes of a character that begins with this one; 0: none does."""
    if byte < 0x80:
        return 1
    if 0xC2 <= byte < 0xE0:
        return 2
    if 0xE0 <= byte < 0xF0:
        return 3
    return 4 if 0xF0 <= byte < 0xF5 else 0
