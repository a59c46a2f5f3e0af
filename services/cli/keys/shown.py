"""How keys are shown: lines for people, JSON objects for programs. Pure."""

import json
from collections.abc import Iterable
from datetime import UTC, datetime

from schemas.keys import KeyRecord

COLUMNS = ("ID", "NAME", "SCOPES", "MODELS", "LIMITS", "CONTENT", "CREATED", "STATE")
NOTHING = "-"


def as_json(record: KeyRecord, secret: str = "") -> str:
    """One line. secret: the key itself, shown once."""
    fields: dict[str, object] = {
        "id": record.id,
        "name": record.name,
        "scopes": record.scopes,
        "models": record.models,
        "requests_per_minute": record.limits.requests_per_minute,
        "tokens_per_minute": record.limits.tokens_per_minute,
        "concurrent": record.limits.concurrent,
        "content": record.content or None,
        "created_at_ms": record.created_at_ms,
        "expires_at_ms": record.expires_at_ms or None,
        "revoked_at_ms": record.revoked_at_ms or None,
    }
    return json.dumps(({"key": secret} if secret else {}) | fields)


def as_table(records: Iterable[KeyRecord], now_ms: int) -> str:
    """A line for each, under a heading."""
    rows = [COLUMNS, *(_cells(record, now_ms) for record in records)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(COLUMNS))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def state_of(record: KeyRecord, now_ms: int) -> str:
    if record.revoked_at_ms:
        return f"revoked {_day(record.revoked_at_ms)}"
    if not record.expires_at_ms:
        return "valid"
    is_over = now_ms >= record.expires_at_ms
    return f"{'expired' if is_over else 'valid until'} {_minute(record.expires_at_ms)}"


def _cells(record: KeyRecord, now_ms: int) -> tuple[str, ...]:
    return (
        record.id,
        record.name,
        ",".join(record.scopes),
        ",".join(record.models) or "all",
        _limits(record),
        record.content or NOTHING,
        _day(record.created_at_ms),
        state_of(record, now_ms),
    )


def _limits(record: KeyRecord) -> str:
    limits = record.limits
    pairs = (
        (limits.requests_per_minute, "requests/min"),
        (limits.tokens_per_minute, "tokens/min"),
        (limits.concurrent, "at once"),
    )
    return ", ".join(f"{number} {unit}" for number, unit in pairs if number) or NOTHING


def _day(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d")


def _minute(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%MZ")
