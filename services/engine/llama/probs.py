# pyright: basic
"""Probabilities of an emitted token and of its rivals. Only where a request asks for them."""

import ctypes
from typing import Any

import numpy as np

from schemas.events import TokenProbs, TopProb
from services.engine.llama.library import lib
from services.engine.llama.pieces import Pieces
from services.engine.llama.sampler import Sampler

_CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])


def before_sampling(context: int, row: int, token: int, n_top: int, pieces: Pieces) -> TokenProbs:
    """Natural logarithms of the model's own probabilities (softmax of the raw float32 logits)."""
    logprobs = _log_softmax(_logits(context, row, pieces.n_vocab))
    order = np.argsort(-logprobs, kind="stable")[:n_top]
    top = tuple(_top(int(i), float(logprobs[i]), pieces) for i in order)
    return TokenProbs(piece=pieces.piece(token), logprob=float(logprobs[token]), top=top)


def sample_with_probs(
    sampler: Sampler, context: int, row: int, n_top: int, pieces: Pieces
) -> tuple[int, TokenProbs]:
    """Choose a token; its probability among the candidates that the chain left (not a logarithm)."""
    table = np.zeros(pieces.n_vocab, dtype=_CANDIDATE)
    table["id"] = np.arange(pieces.n_vocab)
    table["logit"] = _logits(context, row, pieces.n_vocab)
    data = table.ctypes.data_as(ctypes.POINTER(lib.llama_token_data))
    candidates = lib.llama_token_data_array(data, len(table), -1, False)
    token = sampler.choose(candidates)
    left = _candidates(candidates)
    left = left[np.argsort(-left["p"], kind="stable")]
    chosen = float(left["p"][left["id"] == token][0])
    top = tuple(_top(int(c["id"]), float(c["p"]), pieces) for c in left[:n_top] if c["p"] > 0)
    return token, TokenProbs(piece=pieces.piece(token), logprob=chosen, top=top)


def _top(token: int, value: float, pieces: Pieces) -> TopProb:
    return TopProb(id=token, piece=pieces.piece(token), logprob=value)


def _candidates(array: Any) -> np.ndarray:
    """The candidates of an array, wherever a sampler has put them."""
    size = array.size * _CANDIDATE.itemsize
    raw = ctypes.string_at(ctypes.cast(array.data, ctypes.c_void_p), size)
    return np.frombuffer(raw, dtype=_CANDIDATE)


def _logits(context: int, row: int, n_vocab: int) -> np.ndarray:
    """A copy of a batch row's logits: float32, shape (n_vocab,)."""
    pointer = lib.llama_get_logits_ith(context, row)
    return np.ctypeslib.as_array(pointer, shape=(n_vocab,)).copy()


def _log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits.astype(np.float64) - logits.max()
    return shifted - np.log(np.exp(shifted).sum())
