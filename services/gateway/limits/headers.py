"""What clients are told of their limits: OpenAI's headers, and Anthropic's. Pure."""

from datetime import UTC, datetime

from services.gateway.limits.verdict import Gauge, Standing

NS_PER_MS = 1_000_000
MS_PER_S, MS_PER_MINUTE, MS_PER_HOUR = 1000, 60_000, 3_600_000


def openai_headers(standing: Standing) -> dict[str, str]:
    """`x-ratelimit-…-requests` and `…-tokens`, for the limits that there are."""
    found: dict[str, str] = {}
    for name, gauge in _named(standing):
        found[f"x-ratelimit-limit-{name}"] = str(gauge.limit)
        found[f"x-ratelimit-remaining-{name}"] = str(gauge.remaining)
        found[f"x-ratelimit-reset-{name}"] = duration(gauge.reset_ns)
    return found


def anthropic_headers(standing: Standing, now_ns: int) -> dict[str, str]:
    """`anthropic-ratelimit-requests-…` and `…-tokens-…`; times are RFC 3339."""
    found: dict[str, str] = {}
    for name, gauge in _named(standing):
        at = datetime.fromtimestamp((now_ns + gauge.reset_ns) // 1_000_000_000, UTC)
        found[f"anthropic-ratelimit-{name}-limit"] = str(gauge.limit)
        found[f"anthropic-ratelimit-{name}-remaining"] = str(gauge.remaining)
        found[f"anthropic-ratelimit-{name}-reset"] = at.strftime("%Y-%m-%dT%H:%M:%SZ")
    return found


def duration(ns: int) -> str:
    """As OpenAI writes it: `20ms`, `1.5s`, `6m0s`, `1h0m0s`. Rounded up to milliseconds."""
    ms = -(-ns // NS_PER_MS)
    if ms < MS_PER_S:
        return f"{ms}ms"
    hours, rest = divmod(ms, MS_PER_HOUR)
    minutes, rest = divmod(rest, MS_PER_MINUTE)
    seconds = f"{rest / MS_PER_S:.3f}".rstrip("0").rstrip(".") + "s"
    if hours:
        return f"{hours}h{minutes}m{seconds}"
    return f"{minutes}m{seconds}" if minutes else seconds


def _named(standing: Standing) -> list[tuple[str, Gauge]]:
    pairs = (("requests", standing.requests), ("tokens", standing.tokens))
    return [(name, gauge) for name, gauge in pairs if gauge is not None]
