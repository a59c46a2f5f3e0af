# pyright: basic
"""The last link of a chain: what chooses one of the candidates, and can go on from a log.

llama.cpp's mirostat and adaptive-p cannot be set to a state, so here it lives outside of them: for
each token a sampler that begins with that state cuts and weighs the candidates, in C and so bit for
bit as in llama-server, and the choice between them is made with a random source of our own.
"""

import ctypes
from typing import Any

import numpy as np

from schemas.params import Sampling
from services.engine.llama.candidates import Candidates
from services.engine.llama.chain import apply_sampler
from services.engine.llama.library import lib, quick
from services.engine.llama.random_source import RandomSource

MIROSTAT_M = 100
"""Tokens from which mirostat 1 estimates the steepness of the distribution (llama-server)."""
_Float = np.float32
_quietly = np.errstate(all="ignore")
"""Numbers run over as they do in C."""
_log2 = quick("log2f", [ctypes.c_float], ctypes.c_float)


class Dist:
    """llama.cpp's `dist`: a token at random, by its probability. Draws once per choice.

    sampler: part of a chain, which frees it.
    """

    state = None

    def __init__(self, seed: int) -> None:
        self.sampler = lib.llama_sampler_init_dist(seed)
        self.n_draws = 0

    def skip(self, n: int) -> None:
        """Go on as if `n` values had been drawn."""
        candidate = lib.llama_token_data(id=0, logit=0.0, p=0.0)
        array = lib.llama_token_data_array(ctypes.pointer(candidate), 1, -1, False)
        for _ in range(n):
            apply_sampler(self.sampler, ctypes.byref(array))
        self.n_draws += n


class Mirostat:
    """Mirostat 1 or 2. state: mu, the largest surprise that is let through, in bits."""

    @_quietly
    def __init__(self, vocab: int, s: Sampling, seed: int) -> None:
        self._n_vocab = lib.llama_vocab_n_tokens(vocab)
        self._version = s.mirostat
        self._tau, self._eta = _Float(s.mirostat_tau), _Float(s.mirostat_eta)
        self._mu = _Float(2) * self._tau
        self._random = RandomSource(seed)
        self.skip = self._random.skip

    @property
    def n_draws(self) -> int:
        return self._random.n_draws

    @property
    def state(self) -> float:
        return float(self._mu)

    def restore(self, state: float) -> None:
        self._mu = _Float(state)

    @_quietly
    def apply(self, candidates: Candidates) -> None:
        _apply_once(self._make(), candidates)
        p = candidates.rows["p"]
        chosen = self._random.pick(p)
        candidates.array.selected = chosen
        surprise = _Float(-_log2(float(p[chosen])))
        self._mu = self._mu - self._eta * (surprise - self._tau)

    def accept(self, token: int) -> None:
        """It has learned from its choice already."""

    def close(self) -> None:
        """It holds nothing."""

    def _make(self) -> Any:
        """A sampler whose mu, twice its tau, is ours."""
        tau = float(self._mu / _Float(2))
        if self._version == 1:
            return lib.llama_sampler_init_mirostat(self._n_vocab, 0, tau, 0.0, MIROSTAT_M)
        return lib.llama_sampler_init_mirostat_v2(0, tau, 0.0)


class AdaptiveP:
    """Adaptive-p. state: the decaying sum of the probabilities that chosen tokens had."""

    @_quietly
    def __init__(self, s: Sampling, seed: int) -> None:
        self._target, self._decay = _Float(s.adaptive_target), _Float(s.adaptive_decay)
        rest = _Float(1) - self._decay
        self._sum, self._weight = self._target / rest, _Float(1) / rest
        self._random = RandomSource(seed)
        self.skip = self._random.skip
        self._pending: tuple[int, np.float32] | None = None
        self._softmax = lib.llama_sampler_init_adaptive_p(-1.0, 0.0, 0)

    @property
    def n_draws(self) -> int:
        return self._random.n_draws

    @property
    def state(self) -> float | None:
        """None where it only chooses: a negative target switches it off."""
        return None if self._target < 0 else float(self._sum)

    def restore(self, state: float, n_tokens: int) -> None:
        """n_tokens: how many have been chosen."""
        self._sum = _Float(state)
        for _ in range(n_tokens):
            before, self._weight = self._weight, _Float(1) + self._decay * self._weight
            if before == self._weight:
                return

    @_quietly
    def apply(self, candidates: Candidates) -> None:
        apply_sampler(self._softmax, candidates.reference)
        before = candidates.rows["p"].copy()
        if self._target >= 0:
            _apply_once(lib.llama_sampler_init_adaptive_p(self._aim(), 0.0, 0), candidates)
        chosen = self._random.pick(candidates.rows["p"])
        candidates.array.selected = chosen
        if self._target >= 0:
            self._pending = candidates.chosen, before[chosen]

    def accept(self, token: int) -> None:
        if self._pending is not None and self._pending[0] == token:
            self._sum = self._pending[1] + self._decay * self._sum
            self._weight = _Float(1) + self._decay * self._weight
        self._pending = None

    def close(self) -> None:
        lib.llama_sampler_free(self._softmax)

    def _aim(self) -> float:
        """The probability to prefer now. A fresh sampler without decay aims at its target itself."""
        target = np.clip(self._target, _Float(0), _Float(1))
        mean = self._sum / self._weight
        return float(np.clip(_Float(2) * target - mean, _Float(0), _Float(1)))


def _apply_once(sampler: Any, candidates: Candidates) -> None:
    apply_sampler(sampler, candidates.reference)
    lib.llama_sampler_free(sampler)
