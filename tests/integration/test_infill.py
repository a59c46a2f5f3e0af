"""Our `infill` leaves what llama.cpp's leaves."""

import ctypes
from collections.abc import Iterator

import numpy as np
import pytest

from services.engine.llama.candidates import Candidates
from services.engine.llama.chain import apply_sampler
from services.engine.llama.library import lib
from services.engine.llama.pieces import Pieces
from services.engine.llama.sampler import Infill
from tests.support.decoder_client import STORIES


@pytest.fixture(scope="module")
def pieces() -> Iterator[Pieces]:
    params = lib.llama_model_default_params()
    params.vocab_only = True
    model = lib.llama_model_load_from_file(STORIES.encode(), params)
    vocab = lib.llama_model_get_vocab(model)
    yield Pieces(vocab, lib.llama_vocab_n_tokens(vocab))
    lib.llama_model_free(model)


def kept(candidates: Candidates) -> list[tuple[int, float]]:
    rows = candidates.rows
    return list(zip(rows["id"].tolist(), rows["logit"].tolist(), strict=True))


@pytest.mark.parametrize("scale", [0.5, 2.0, 5.0])
@pytest.mark.parametrize("end_bias", [-30.0, 0.0, 4.0])
@pytest.mark.parametrize("n", [3, 60, 0])
def test_the_same_candidates_in_the_same_order(
    pieces: Pieces, scale: float, end_bias: float, n: int
) -> None:
    """n: candidates that a top-k leaves before, 0 for all."""
    eog_ids = frozenset(i for i in range(pieces.n_vocab) if lib.llama_vocab_is_eog(pieces.vocab, i))
    ours, theirs = Infill(pieces, eog_ids), lib.llama_sampler_init_infill(pieces.vocab)
    top_k = lib.llama_sampler_init_top_k(n)
    for seed in range(20):
        logits = np.random.default_rng(seed).normal(0, scale, pieces.n_vocab).astype(np.float32)
        logits[list(eog_ids)] += np.float32(end_bias)
        logits[seed::7] = -np.inf
        found: list[list[tuple[int, float]]] = []
        for link in (ours.apply, lambda c: apply_sampler(theirs, c.reference)):
            candidates = Candidates(pieces.n_vocab)
            candidates.fill_with(logits)
            apply_sampler(top_k, candidates.reference)
            link(candidates)
            found.append(kept(candidates))
        assert found[0] == found[1], seed
    ours.close()
    for sampler in (theirs, top_k):
        lib.llama_sampler_free(sampler)


def test_candidates_are_laid_out_as_in_c(pieces: Pieces) -> None:
    candidates = Candidates(pieces.n_vocab)
    assert ctypes.sizeof(lib.llama_token_data) == candidates.rows.itemsize
    candidates.fill_with(np.arange(pieces.n_vocab, dtype=np.float32))
    candidates.force(5)
    assert [c[0] for c in kept(candidates) if c[1] > -np.inf] == [5]
