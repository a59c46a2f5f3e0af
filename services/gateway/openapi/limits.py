"""What keys with limits see: headers of every answer, and of the refusal."""

from typing import cast

from services.gateway.openapi.terms import INTEGER, STRING, Json, ref

DENIED = "The key may not use this model"
TOO_MANY = "A limit of the key is reached: requests or tokens per minute, or generations at once"


def _header(text: str, schema: Json = STRING) -> Json:
    return {"description": text, "schema": schema}


RATE_HEADERS: Json = {
    f"x-ratelimit-{what}-{unit}": _header(f"{text} ({unit} per minute)", schema)
    for unit in ("requests", "tokens")
    for what, text, schema in (
        ("limit", "What the key may use", INTEGER),
        ("remaining", "What is left now", INTEGER),
        ("reset", "When all of it is free again, as `6m0s`", STRING),
    )
}
"""Only for keys with such a limit; `/v1/messages` sends `anthropic-ratelimit-…` besides."""
RETRY_AFTER: Json = {
    "Retry-After": _header("Seconds; absent where asking again is no use", INTEGER)
}


def limited(responses: Json) -> Json:
    """The responses of an operation that keys may be limited in."""
    success = cast(Json, responses["200"]) | {"headers": RATE_HEADERS}
    schema = {"application/json": {"schema": ref("Error")}}
    denied: Json = {"description": DENIED, "content": schema}
    too_many: Json = {
        "description": TOO_MANY,
        "content": schema,
        "headers": RATE_HEADERS | RETRY_AFTER,
    }
    return responses | {"200": success, "404": denied, "429": too_many}
