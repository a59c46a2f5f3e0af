"""The JSON objects that several dialects show: usage, timings, probabilities. llama-server's keys."""

import math
from collections.abc import Iterable, Sequence

from schemas.events import ChoiceEnd, Progress, Timings, TokenProbs, TopProb

Json = dict[str, object]
LOWEST = -3.4028234663852886e38
"""The logarithm of 0 in llama-server: the lowest 32-bit float, since JSON has no infinity."""


def usage_json(
    end: ChoiceEnd, *, n_predicted: int | None = None, n_thought: int | None = None
) -> Json:
    """n_predicted: of several choices together. n_thought: how many of them; None where the dialect
    does not say."""
    n_predicted = end.n_predicted if n_predicted is None else n_predicted
    details = {"completion_tokens_details": {"reasoning_tokens": n_thought}}
    return {
        "completion_tokens": n_predicted,
        "prompt_tokens": end.n_prompt,
        "total_tokens": n_predicted + end.n_prompt,
        "prompt_tokens_details": {"cached_tokens": end.n_cached},
        **({} if n_thought is None else details),
    }


def timings_json(timings: Timings) -> Json:
    """The first token comes from the prompt's logits and costs no step of its own."""
    n_steps = max(0, timings.n_predicted - 1)
    return {
        "cache_n": timings.n_cached,
        "prompt_n": timings.n_prompt,
        "prompt_ms": timings.prompt_ms,
        "prompt_per_token_ms": _ratio(timings.prompt_ms, timings.n_prompt),
        "prompt_per_second": _ratio(1000.0, timings.prompt_ms) * timings.n_prompt,
        "predicted_n": timings.n_predicted,
        "predicted_ms": timings.predicted_ms,
        "predicted_per_token_ms": _ratio(timings.predicted_ms, n_steps),
        "predicted_per_second": _ratio(1000.0, timings.predicted_ms) * n_steps,
    }


def _ratio(value: float, divisor: float) -> float:
    return value / divisor if divisor > 0 else 0.0


def progress_json(event: Progress) -> Json:
    return {
        "total": event.n_total,
        "cache": event.n_cached,
        "processed": event.n_processed,
        "time_ms": event.elapsed_us // 1000,
    }


def progress_timings(event: Progress) -> Timings:
    """What timings_per_token shows while the prompt is processed."""
    n_done = event.n_processed - event.n_cached
    return Timings(
        n_cached=event.n_cached,
        n_prompt=n_done,
        prompt_ms=event.elapsed_us / 1000 if n_done else 0.0,
    )


def probs_json(probs: Iterable[TokenProbs], ids: Sequence[int], *, is_post: bool) -> list[Json]:
    """Probabilities per token. is_post: after sampling, as probabilities instead of logarithms."""
    key, top_key = ("prob", "top_probs") if is_post else ("logprob", "top_logprobs")
    return [
        _piece_json(token, item.piece, item.logprob, key)
        | {top_key: [_top_json(top, key) for top in item.top]}
        for token, item in zip(ids, probs, strict=False)
    ]


def _top_json(top: TopProb, key: str) -> Json:
    return _piece_json(top.id, top.piece, top.logprob, key)


def _piece_json(token: int, piece: bytes, value: float, key: str) -> Json:
    return {
        "id": token,
        "token": _whole_characters(piece),
        "bytes": list(piece),
        key: value if math.isfinite(value) else LOWEST,
    }


def _whole_characters(piece: bytes) -> str:
    """The text of a piece: a character cut off at its end is left out, other bad bytes are replaced."""
    for n in range(1, min(4, len(piece)) + 1):
        if n < _n_bytes(piece[-n]):
            return piece[:-n].decode(errors="replace")
    return piece.decode(errors="replace")


def _n_bytes(first: int) -> int:
    """Length of the character that a byte begins; 1 where it begins none of several bytes."""
    if first & 0xE0 == 0xC0:
        return 2
    if first & 0xF0 == 0xE0:
        return 3
    return 4 if first & 0xF8 == 0xF0 else 1


def without_stop_word(probs: Sequence[TokenProbs], end: ChoiceEnd) -> int:
    """How many tokens' probabilities an answer shows: those of the stop word are left out."""
    if end.stop_type != "word":
        return len(probs)
    word, seen = end.stopping_word.encode(), b""
    for n_kept in range(len(probs) - 1, -1, -1):
        seen = probs[n_kept].piece + seen
        if word in seen:
            return n_kept
    return len(probs)


def finish_reason(end: ChoiceEnd, *, has_calls: bool = False) -> str:
    if end.stop_type == "limit":
        return "length"
    return "tool_calls" if has_calls else "stop"
