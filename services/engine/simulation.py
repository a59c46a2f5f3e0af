"""What a simulated decoder does, and how `--simulate` says it. Pure.

A simulated decoder keeps time instead of computing: it needs no model and no memory, so that load
tests and failover drills run anywhere. Its text depends on prompt, seed and position alone.
"""

import math

from schemas.struct import Message
from services.engine.errors import BadSimulation


class Simulation(Message, frozen=True, kw_only=True):
    """How fast it is and how it ends.

    tokens_per_s: of each running slot. ttft_ms: from the taken slot to its first token, at least.
    jitter: part of each step's time by which it may be longer or shorter, 0–1.
    prompt_tokens_per_s: of each slot's prompt, 0 for no time. eos_after: tokens after which a choice
    ends by itself, −1 for never. fail_after: tokens in all after which the decoder process dies (it
    is started again, and its generations go on), −1 for never.
    """

    tokens_per_s: float = 50.0
    ttft_ms: float = 0.0
    jitter: float = 0.0
    prompt_tokens_per_s: float = 0.0
    eos_after: int = -1
    fail_after: int = -1


_LIMITS = {
    "tokens_per_s": (0.01, 1e6),
    "ttft_ms": (0.0, 3.6e6),
    "jitter": (0.0, 1.0),
    "prompt_tokens_per_s": (0.0, 1e9),
    "eos_after": (-1, 2**31 - 1),
    "fail_after": (-1, 2**31 - 1),
}
_WHOLE = ("eos_after", "fail_after")


def parse_simulation(text: str) -> Simulation:
    """`tokens_per_s=200,ttft_ms=50` as a Simulation; what is not named keeps its default.

    Raises BadSimulation naming the key at fault.
    """
    found: dict[str, float] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        key, has_value, value = (part.strip() for part in item.partition("="))
        if key not in _LIMITS:
            raise BadSimulation(f"there is no {key!r}; there are {', '.join(_LIMITS)}")
        if not has_value:
            raise BadSimulation(f"{key} has no value: write {key}=N")
        if key in found:
            raise BadSimulation(f"{key} is there twice")
        found[key] = _number(key, value)
    return Simulation(**found)  # pyright: ignore[reportArgumentType]


def _number(key: str, text: str) -> float:
    low, high = _LIMITS[key]
    try:
        number = int(text) if key in _WHOLE else float(text)
    except ValueError:
        kind = "whole number" if key in _WHOLE else "number"
        raise BadSimulation(f"{key}: {text!r} is not a {kind}") from None
    if math.isnan(number) or not low <= number <= high:
        raise BadSimulation(f"{key}: {text} is out of range ({low:g} to {high:g})")
    return number
