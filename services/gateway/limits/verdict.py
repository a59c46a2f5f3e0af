"""Whether a key may begin one more generation, and what it has used afterwards. Pure: values in,
values out; the clock is an argument.

Charged are a request, the tokens of its prompt, and what it says that its answer may have at most
(`max_tokens`, for every choice), the last no further than the limit allows. When the generation ends
the answer's real tokens take the place of what was promised. An answer without a bound is charged when
it ends: the bucket may then be over its rim, and later requests wait until that has leaked out.
"""

import os
from typing import NamedTuple

import msgspec

from schemas.keys import KeyLimits, KeyUsage, RunningUse
from schemas.rpc import Prepared
from services.gateway.limits import meter

NS_PER_MS = 1_000_000
REQUESTS, TOKENS, CONCURRENT, TOO_LARGE = "requests", "tokens", "concurrent", "too_large"
CONCURRENT_RETRY_NS = 1_000_000_000


class Cost(NamedTuple):
    """What a generation asks for. n_answer: tokens that its answers may have, 0 where unbounded."""

    n_prompt: int
    n_answer: int = 0


def new_place(generation_id: str) -> str:
    """A name of its own for each attempt: under an idempotency key two gateways may try to begin the
    same generation, and one of them will give its place back."""
    return f"{generation_id}.{os.urandom(4).hex()}"


def generation_of(place: str) -> str:
    return place.partition(".")[0]


def cost_of(prepared: Prepared) -> Cost:
    """Every prompt once, and the answers of every choice."""
    n_prompt = sum(len(prompt.ids) for prompt in prepared.prompts)
    n_choices = len(prepared.prompts) * prepared.params.n_cmpl
    return Cost(n_prompt, max(0, prepared.params.limits.n_predict) * n_choices)


class Gauge(NamedTuple):
    """How one limit stands. reset_ns: until all of it is free again."""

    limit: int
    remaining: int
    reset_ns: int


class Standing(NamedTuple):
    """How a key's limits per minute stand; None for one that it does not have."""

    requests: Gauge | None
    tokens: Gauge | None


class Verdict(NamedTuple):
    """refused_by: which limit, empty if admitted. retry_ns: when to ask again, 0 for never.
    n_reserved: tokens charged for the answer."""

    standing: Standing
    refused_by: str = ""
    retry_ns: int = 0
    n_reserved: int = 0


class Grant(NamedTuple):
    """What was admitted, for the time when it ends. place: what it counts as running under."""

    place: str
    n_reserved: int


def admit(
    usage: KeyUsage, limits: KeyLimits, cost: Cost, place: str, until_ms: int, now_ns: int
) -> tuple[KeyUsage, Verdict]:
    """The usage with one more generation, or as it was where that is refused. place: to be taken by
    it. until_ms: Unix milliseconds at which the generation is over in any case."""
    usage = _living(usage, now_ns)
    refused_by, retry_ns = _refusal(usage, limits, cost, now_ns)
    if refused_by:
        return usage, Verdict(standing(usage, limits, now_ns), refused_by, retry_ns)
    n_reserved = _reserved(limits, cost)
    n_tokens = cost.n_prompt + n_reserved
    after = _charge(usage, limits, n_requests=1, n_tokens=n_tokens, now_ns=now_ns)
    if limits.concurrent:
        use = RunningUse(since_ms=now_ns // NS_PER_MS, until_ms=until_ms, n_reserved=n_reserved)
        after = msgspec.structs.replace(after, running={**after.running, place: use})
    return after, Verdict(standing(after, limits, now_ns), n_reserved=n_reserved)


def settle(
    usage: KeyUsage, limits: KeyLimits, grant: Grant, n_generated: int, now_ns: int
) -> KeyUsage:
    """The usage after a generation has ended with so many tokens. Of one that counted as running
    nothing changes the second time, since several gateways may see its end."""
    if limits.concurrent and grant.place not in usage.running:
        return usage
    n_tokens = n_generated - grant.n_reserved
    return _without(_charge(usage, limits, 0, n_tokens, now_ns), grant.place)


def undo(usage: KeyUsage, limits: KeyLimits, grant: Grant, n_prompt: int, now_ns: int) -> KeyUsage:
    """The usage as if a generation had never been admitted; it did not begin."""
    n_tokens = n_prompt + grant.n_reserved
    return _without(_charge(usage, limits, -1, -n_tokens, now_ns), grant.place)


def standing(usage: KeyUsage, limits: KeyLimits, now_ns: int) -> Standing:
    """What clients are told."""
    return Standing(
        _gauge(usage.requests_until_ns, limits.requests_per_minute, now_ns),
        _gauge(usage.tokens_until_ns, limits.tokens_per_minute, now_ns),
    )


def _refusal(usage: KeyUsage, limits: KeyLimits, cost: Cost, now_ns: int) -> tuple[str, int]:
    """Which limit refuses, and when to ask again; where several do, the longest wait counts."""
    per_minute, of_tokens = limits.requests_per_minute, limits.tokens_per_minute
    n_tokens = cost.n_prompt + _reserved(limits, cost)
    if of_tokens and not meter.fits_ever(of_tokens, n_tokens):
        return TOO_LARGE, 0
    waits: dict[str, int] = {}
    if per_minute:
        waits[REQUESTS] = meter.wait_ns(usage.requests_until_ns, per_minute, 1, now_ns)
    if of_tokens:
        waits[TOKENS] = meter.wait_ns(usage.tokens_until_ns, of_tokens, n_tokens, now_ns)
    if limits.concurrent and len(usage.running) >= limits.concurrent:
        waits[CONCURRENT] = CONCURRENT_RETRY_NS
    longest = max(waits, key=lambda name: waits[name], default="")
    return (longest, waits[longest]) if longest and waits[longest] else ("", 0)


def _reserved(limits: KeyLimits, cost: Cost) -> int:
    """So that a request alone is served, however much it says that it may answer."""
    if not limits.tokens_per_minute:
        return 0
    return max(0, min(cost.n_answer, limits.tokens_per_minute - cost.n_prompt))


def _charge(
    usage: KeyUsage, limits: KeyLimits, n_requests: int, n_tokens: int, now_ns: int
) -> KeyUsage:
    requests, tokens = usage.requests_until_ns, usage.tokens_until_ns
    if limits.requests_per_minute:
        requests = meter.poured(requests, limits.requests_per_minute, n_requests, now_ns)
    if limits.tokens_per_minute:
        tokens = meter.poured(tokens, limits.tokens_per_minute, n_tokens, now_ns)
    return msgspec.structs.replace(usage, requests_until_ns=requests, tokens_until_ns=tokens)


def _living(usage: KeyUsage, now_ns: int) -> KeyUsage:
    """Without what must be over by now."""
    now_ms = now_ns // NS_PER_MS
    running = {each: use for each, use in usage.running.items() if now_ms < use.until_ms}
    return msgspec.structs.replace(usage, running=running)


def _without(usage: KeyUsage, place: str) -> KeyUsage:
    running = {each: use for each, use in usage.running.items() if each != place}
    return msgspec.structs.replace(usage, running=running)


def _gauge(until_ns: int, limit: int, now_ns: int) -> Gauge | None:
    if not limit:
        return None
    left, reset = meter.remaining(until_ns, limit, now_ns), meter.reset_ns(until_ns, now_ns)
    return Gauge(limit, left, reset)
