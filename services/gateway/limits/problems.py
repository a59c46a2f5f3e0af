"""Why a key's request is refused. Pure."""

from schemas.errors import NOT_FOUND, RATE_LIMIT, Problem
from schemas.keys import KeyLimits
from services.gateway.limits.verdict import (
    CONCURRENT,
    REQUESTS,
    TOKENS,
    TOO_LARGE,
    Cost,
    Verdict,
)

NS_PER_S = 1_000_000_000


def limit_reached(verdict: Verdict, limits: KeyLimits, cost: Cost) -> Problem:
    """For a refused verdict; Retry-After is rounded up, so that the retry is let in."""
    retry_after_s = -(-verdict.retry_ns // NS_PER_S) if verdict.retry_ns else None
    message = f"Rate limit reached for this API key: {_reason(verdict, limits, cost)}."
    if retry_after_s is not None:
        message += f" Please try again in {retry_after_s}s."
    return Problem(code=RATE_LIMIT, message=message, retry_after_s=retry_after_s)


def model_denied(name: str) -> Problem:
    """As OpenAI says it: that there is such a model is nothing that such a key learns."""
    message = f"The model '{name}' does not exist or you do not have access to it."
    return Problem(code=NOT_FOUND, message=message, param="model")


def _reason(verdict: Verdict, limits: KeyLimits, cost: Cost) -> str:
    per_minute = f"{limits.tokens_per_minute} tokens per minute"
    reasons = {
        REQUESTS: f"{limits.requests_per_minute} requests per minute",
        CONCURRENT: f"{limits.concurrent} generations at once",
        TOKENS: per_minute,
        TOO_LARGE: f"{per_minute}, and the prompt alone has {cost.n_prompt}; it must be shorter",
    }
    return reasons[verdict.refused_by]
