# pyright: basic
"""Probabilities of an emitted token and of its rivals. Only where a request asks for them."""

import numpy as np

from schemas.events import TokenProbs, TopProb
from services.engine.llama.candidates import Candidates, read_logits
from services.engine.llama.pieces import Pieces


def before_sampling(context: int, row: int, token: int, n_top: int, pieces: Pieces) -> TokenProbs:
    """Natural logarithms of the model's own probabilities (softmax of the raw float32 logits)."""
    logits = read_logits(context, row, pieces.n_vocab)
    order = _largest(logits, n_top)
    logprobs = logits.astype(np.float64) - _log_sum(logits)
    top = tuple(_top(int(i), float(logprobs[i]), pieces) for i in order)
    return TokenProbs(piece=pieces.piece(token), logprob=float(logprobs[token]), top=top)


def after_sampling(candidates: Candidates, token: int, n_top: int, pieces: Pieces) -> TokenProbs:
    """Probabilities (not logarithms) among the candidates that the chain has left.

    In the chain's order where it says that it has one, up to the first that is impossible
    (llama-server).
    """
    rows = candidates.rows
    if not candidates.array.sorted:
        rows = rows[np.argsort(-rows["p"], kind="stable")]
    chosen = float(rows["p"][rows["id"] == token][0])
    shown = rows[:n_top]
    impossible = np.flatnonzero(shown["p"] == 0)
    if len(impossible):
        shown = shown[: impossible[0]]
    top = tuple(_top(int(c["id"]), float(c["p"]), pieces) for c in shown)
    return TokenProbs(piece=pieces.piece(token), logprob=chosen, top=top)


def _top(token: int, value: float, pieces: Pieces) -> TopProb:
    return TopProb(id=token, piece=pieces.piece(token), logprob=value)


def _largest(logits: np.ndarray, n: int) -> np.ndarray:
    """Indices of the `n` largest, largest first; of equals the first one first."""
    if n * 8 < len(logits):
        bound = np.partition(logits, len(logits) - n)[len(logits) - n]
        found = np.flatnonzero(logits >= bound)
    else:
        found = np.arange(len(logits))
    return found[np.argsort(-logits[found], kind="stable")][:n]


def _log_sum(logits: np.ndarray) -> float:
    """The logarithm of the sum of all exponentials."""
    top = float(logits.max())
    return top + float(np.log(np.exp(logits - top).sum(dtype=np.float64)))
