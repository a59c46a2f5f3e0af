"""What tests ask of runs in a decoder."""

from typing import Any

from schemas.events import ChoiceEnd
from tests.support.decoder_client import DecoderClient, Run, admit, decoder

GREEDY: dict[str, Any] = {"temperature": 0.0}


def end_of(run: Run) -> ChoiceEnd:
    assert run.end
    return run.end


def n_cached(client: DecoderClient, name: str, ids: tuple[int, ...], **more: Any) -> int:
    """Run a short generation; how much of its prompt was there."""
    return end_of(client.run_one(admit(name, ids, n_predict=2, **GREEDY, **more))).n_cached


def probs_with(ids: tuple[int, ...], **config: Any) -> tuple[float, ...]:
    """Log probabilities after a prompt in a fresh decoder."""
    with decoder(**config) as client:
        return logprobs(client.run_one(admit("fresh", ids, n_predict=1, n_probs=5, **GREEDY)))


def logprobs(run: Run) -> tuple[float, ...]:
    probs = run.emitted[0].probs
    assert probs
    return tuple(top.logprob for top in probs.top)
