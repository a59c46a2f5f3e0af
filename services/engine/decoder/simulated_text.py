"""What a simulated decoder says: tokens that depend on prompt, seed and position alone. Pure."""

import math
from collections.abc import Sequence
from hashlib import blake2b
from typing import Protocol

from schemas.events import TokenProbs, TopProb
from services.engine.decoder.job import Sampled

_MASK = (1 << 64) - 1
MIN_WORDS = 16


class Pieces(Protocol):
    """What of a vocabulary is needed to say something."""

    @property
    def n_vocab(self) -> int: ...
    @property
    def eog(self) -> tuple[int, ...]: ...
    def piece(self, token: int, *, special: bool = True) -> bytes: ...


class Words:
    """The tokens of a vocabulary that are readable text, and the one that ends it."""

    def __init__(self, vocabulary: Pieces) -> None:
        pieces = [
            (token, vocabulary.piece(token, special=False)) for token in range(vocabulary.n_vocab)
        ]
        readable = [pair for pair in pieces if _is_word(pair[1])]
        chosen = readable if len(readable) >= MIN_WORDS else [p for p in pieces if p[1]]
        self.sampled = tuple(
            Sampled(id=token, piece=piece, is_eog=False) for token, piece in chosen
        )
        self.end = Sampled(id=next(iter(vocabulary.eog), 0), piece=b"", is_eog=True)


def _is_word(piece: bytes) -> bool:
    """A space and lower-case letters: what reads well in any order."""
    return len(piece) > 1 and piece[:1] == b" " and piece[1:].isalpha() and piece[1:].islower()


class Voice:
    """One choice's tokens: `at(index)` is always the same for the same prompt and seed."""

    def __init__(self, words: Words, prompt: Sequence[int], seed: int) -> None:
        self._words = words.sampled
        data = b",".join(b"%d" % number for number in (seed, *prompt))
        self._key = int.from_bytes(blake2b(data, digest_size=8).digest(), "little")

    def at(self, index: int) -> Sampled:
        return self._words[self._draw(index) % len(self._words)]

    def with_probs(self, index: int, n_top: int) -> Sampled:
        """The same token with made-up probabilities: it, then its neighbours, each half as likely."""
        chosen = self.at(index)
        first = self._draw(index) % len(self._words)
        rivals = (self._words[(first + i) % len(self._words)] for i in range(n_top))
        top = tuple(
            TopProb(id=rival.id, piece=rival.piece, logprob=-(i + 1) * math.log(2))
            for i, rival in enumerate(rivals)
        )
        probs = TokenProbs(piece=chosen.piece, logprob=-math.log(2), top=top)
        return Sampled(id=chosen.id, piece=chosen.piece, is_eog=False, probs=probs)

    def _draw(self, index: int) -> int:
        """The splitmix64 generator, jumped to."""
        x = (self._key + index * 0x9E3779B97F4A7C15) & _MASK
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
        return x ^ (x >> 31)
