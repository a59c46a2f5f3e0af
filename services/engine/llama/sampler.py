# pyright: basic
"""The sampler of one choice: llama-server's chain, which can go on from a log."""

import ctypes
from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np

from schemas.params import Sampling
from services.engine.llama.candidates import Candidates
from services.engine.llama.chain import MAKERS, Chain, Xtc, biases, check, uses_xtc, window
from services.engine.llama.choosers import AdaptiveP, Dist, Mirostat
from services.engine.llama.infill import cut
from services.engine.llama.library import lib, quick
from services.engine.llama.pieces import Pieces
from services.engine.marks import Marks

_sample = quick(
    "llama_sampler_sample", [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32], ctypes.c_int32
)


class Link(Protocol):
    """A part of the chain. The last one selects a candidate."""

    def apply(self, candidates: Candidates) -> None: ...
    def accept(self, token: int) -> None: ...
    def close(self) -> None: ...


class Sampler:
    """Chooses tokens. One per choice; owns C memory until `close`. One thread.

    seed: concrete, 32 bits. n_ctx: what `-1` means for windows of last tokens. eog_ids: those that
    end a generation. Raises RequestError for parameters that make no chain.
    """

    def __init__(
        self,
        pieces: Pieces,
        sampling: Sampling,
        *,
        seed: int,
        n_ctx: int,
        eog_ids: Iterable[int],
    ) -> None:
        check(sampling)
        self._window = window(sampling, n_ctx)
        builder = _Builder(pieces, sampling, seed, n_ctx, frozenset(eog_ids))
        self._links = builder.links
        self._chooser = builder.chooser
        self._xtcs = builder.xtcs
        self._whole = self._links[0] if len(self._links) == 1 else None
        self._marked = self._counts()

    @property
    def is_simple(self) -> bool:
        """Whether all of it is one chain of llama.cpp's, so that `sample` is the cheapest way."""
        return isinstance(self._whole, Chain)

    def sample(self, context: int, row: int) -> int:
        """Choose a token from the logits of a batch row, and accept it. Only if it `is_simple`.

        0.1–0.2 ms.
        """
        assert isinstance(self._whole, Chain), "one chain"
        self._chooser.n_draws += 1  # type: ignore[union-attr]
        return _sample(self._whole.pointer, context, row)

    def choose(self, candidates: Candidates) -> int:
        """Choose one of the candidates, which are left as the chain saw them last; not accepted yet."""
        for link in self._links:
            link.apply(candidates)
        if isinstance(self._chooser, Dist):
            self._chooser.n_draws += candidates.size > 0
        return candidates.chosen

    def accept(self, token: int) -> None:
        """Take a token as history."""
        for link in self._links:
            link.accept(token)

    def take_marks(self) -> Marks:
        """What a log must keep of all choices since the last call."""
        before, self._marked = self._marked, self._counts()
        return Marks(
            draws=self._marked[0] - before[0],
            xtc_draws=self._marked[1] - before[1] if self._xtcs else 1,
            mu=self._chooser.state,
        )

    def restore(self, history: Sequence[int], marks: Marks, n_chosen: int) -> None:
        """Go on as if `history` had been accepted, its last `n_chosen` tokens chosen here.

        marks: the draws of all these choices, and the last state.
        """
        for token in history[max(0, len(history) - self._window) :] if self._window else ():
            self.accept(token)
        self._chooser.skip(marks.draws)
        for xtc in self._xtcs:
            xtc.skip(marks.xtc_draws)
        if marks.mu is not None:
            self._restore_state(marks.mu, n_chosen)
        self._marked = self._counts()

    def close(self) -> None:
        for link in self._links:
            link.close()

    def _restore_state(self, state: float, n_chosen: int) -> None:
        if isinstance(self._chooser, Mirostat):
            self._chooser.restore(state)
        elif isinstance(self._chooser, AdaptiveP):
            self._chooser.restore(state, n_chosen)

    def _counts(self) -> tuple[int, int]:
        return self._chooser.n_draws, sum(xtc.n_draws for xtc in self._xtcs)


class _Builder:
    """Makes the links. Neighbours of llama.cpp's go into one chain: one call for all of them."""

    def __init__(
        self, pieces: Pieces, s: Sampling, seed: int, n_ctx: int, eog_ids: frozenset[int]
    ) -> None:
        self.links: list[Link] = []
        self.xtcs: list[Xtc] = []
        self._pieces, self._sampling, self._n_ctx = pieces, s, n_ctx
        self._seed, self._eog_ids = seed, eog_ids
        if (bias := biases(pieces.vocab, s, eog_ids)) is not None:
            self._add(bias)
        for name in ("temperature",) if s.mirostat else s.samplers:
            self._add_named(name)
        self.chooser = self._choose()

    def _add(self, sampler: object) -> None:
        if not self.links or not isinstance(self.links[-1], Chain):
            self.links.append(Chain())
        self.links[-1].add(sampler)  # type: ignore[attr-defined]

    def _add_named(self, name: str) -> None:
        """Names that llama-server does not know either are ignored; adaptive_p comes last."""
        s = self._sampling
        if s.mirostat:
            self._add(lib.llama_sampler_init_temp(s.temperature))
        elif (make := MAKERS.get(name)) is not None:
            self._add(make(self._pieces.vocab, s, self._n_ctx))
        elif name == "infill":
            self.links.append(Infill(self._pieces, self._eog_ids))
        elif name == "xtc" and uses_xtc(s):
            self.xtcs.append(Xtc(s, self._seed))
            self.links.append(self.xtcs[-1])

    def _choose(self) -> Dist | Mirostat | AdaptiveP:
        s = self._sampling
        if s.mirostat:
            chooser = Mirostat(self._pieces.vocab, s, self._seed)
        elif "adaptive_p" in s.samplers:
            chooser = AdaptiveP(s, self._seed)
        else:
            dist = Dist(self._seed)
            self._add(dist.sampler)
            return dist
        self.links.append(chooser)
        return chooser


class Infill:
    """Leaves what may follow when text is filled in."""

    def __init__(self, pieces: Pieces, eog_ids: frozenset[int]) -> None:
        self._pieces = pieces
        self._is_end = np.zeros(pieces.n_vocab, dtype=bool)
        self._is_end[list(eog_ids)] = True
        eot = lib.llama_vocab_eot(pieces.vocab)
        self._end_id = eot if eot >= 0 else lib.llama_vocab_eos(pieces.vocab)
        # Together they do nothing but sort, and give each candidate its probability.
        self._softmax = Chain()
        self._softmax.add(lib.llama_sampler_init_top_k(pieces.n_vocab))
        self._softmax.add(lib.llama_sampler_init_top_p(0.5, pieces.n_vocab))

    def apply(self, candidates: Candidates) -> None:
        self._softmax.apply(candidates)
        rows = cut(candidates.rows, self._is_end, self._pieces.piece, self._end_id)
        candidates.put(rows)

    def accept(self, token: int) -> None:
        """It has no use for tokens."""

    def close(self) -> None:
        self._softmax.close()
