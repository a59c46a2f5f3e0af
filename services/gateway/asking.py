"""What a request says beside its dialect: how urgent it is, and that it may be asked again."""

import hashlib
from collections.abc import Mapping
from typing import NamedTuple

import orjson

from schemas.errors import RequestError
from schemas.lanes import BATCH_CLASS, INTERACTIVE_CLASS, PRIORITIES
from services.edge.body import JsonObject

PRIORITY_FIELD, PRIORITY_HEADER = "priority", "x-priority"
TIER_FIELD, FLEX_TIERS = "service_tier", ("flex", "batch")
IDEMPOTENCY_HEADER = "idempotency-key"
MAX_KEY_CHARS = 255
SHOWN_PRIORITIES = "'interactive' or 'batch'"


class Idempotency(NamedTuple):
    """key: as the client chose it. request_hash: sha256 in hex of what it asks for."""

    key: str
    request_hash: str


def priority_of(headers: Mapping[str, str], body: JsonObject) -> str:
    """The class of a request: what the body says, else the header, else OpenAI's `service_tier`.

    A number is vLLM's: above 0 is less urgent than others. Raises RequestError.
    """
    for value, name in (
        (body.get(PRIORITY_FIELD), PRIORITY_FIELD),
        (headers.get(PRIORITY_HEADER), "X-Priority"),
    ):
        if value is not None:
            return _priority(value, name)
    return BATCH_CLASS if body.get(TIER_FIELD) in FLEX_TIERS else INTERACTIVE_CLASS


def _priority(value: object, name: str) -> str:
    if isinstance(value, str) and value in PRIORITIES:
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return BATCH_CLASS if value > 0 else INTERACTIVE_CLASS
    raise RequestError.invalid(f"Field '{name}': expected {SHOWN_PRIORITIES}", name)


def idempotency_of(
    headers: Mapping[str, str], *, path: str, dialect: str, body: JsonObject
) -> Idempotency | None:
    """The request's idempotency key, None if it has none. Raises RequestError."""
    key = headers.get(IDEMPOTENCY_HEADER)
    if key is None:
        return None
    if not 1 <= len(key) <= MAX_KEY_CHARS or not (key.isascii() and key.isprintable()):
        raise RequestError.invalid(
            f"Idempotency-Key must be 1 to {MAX_KEY_CHARS} printable ASCII characters",
            "Idempotency-Key",
        )
    return Idempotency(key, request_hash(path, dialect, body))


def request_hash(path: str, dialect: str, body: JsonObject) -> str:
    """Equal for equal requests, in whatever order their fields stand."""
    canonical = orjson.dumps(body, option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(b"\0".join((path.encode(), dialect.encode(), canonical))).hexdigest()
