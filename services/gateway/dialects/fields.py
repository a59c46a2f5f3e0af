"""What all dialects have in common: nulls, and checks with messages for people."""

from dataclasses import dataclass
from typing import cast

from schemas.errors import RequestError

JsonObject = dict[str, object]

FLAGS = ("stream", "cache_prompt", "return_tokens", "timings_per_token", "ignore_eos")
NUMBERS = ("n_predict", "max_completion_tokens", "max_tokens", "n_cmpl", "n", "n_probs")
"""Aliases stay what the client wrote: the engine knows them too, and its errors name them."""


@dataclass(frozen=True, kw_only=True)
class NativeRequest:
    """A translated request. kind: chat, completion or infill, as in Prepare. body: under native names."""

    kind: str
    body: JsonObject
    is_stream: bool


def without_nulls(body: JsonObject) -> JsonObject:
    return {name: value for name, value in body.items() if value is not None}


def common_fields(body: JsonObject) -> JsonObject:
    """A copy of `body` without nulls, the fields of all dialects checked. Raises RequestError."""
    native = without_nulls(body)
    for name in FLAGS:
        optional_bool(native, name)
    for name in NUMBERS:
        optional_number(native, name)
    options = optional_object(native, "stream_options")
    if options is not None:
        optional_bool(options, "include_usage", "stream_options.include_usage")
    if "stop" in native:
        native["stop"] = stop_strings(native["stop"])
    return native


def stop_strings(value: object) -> list[str]:
    """`stop` as a list: one string stands for itself. Raises RequestError."""
    if isinstance(value, str):
        return [value]
    words = as_list(value)
    if words is None or not all(isinstance(word, str) for word in words):
        raise wrong_type("stop", "a string or a list of strings")
    return cast("list[str]", words)


def optional_bool(body: JsonObject, name: str, shown: str = "") -> bool:
    """The flag `name`, False where absent. Raises RequestError if it is something else."""
    value = body.get(name)
    if value is not None and not isinstance(value, bool):
        raise wrong_type(shown or name, "a boolean")
    return bool(value)


def optional_number(body: JsonObject, name: str) -> int | float | None:
    """The number `name`; a boolean is none. Raises RequestError if it is something else."""
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong_type(name, "a number")
    return value


def optional_string(body: JsonObject, name: str, shown: str = "") -> str | None:
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise wrong_type(shown or name, "a string")
    return value


def optional_object(body: JsonObject, name: str, shown: str = "") -> JsonObject | None:
    value = body.get(name)
    if value is not None and not isinstance(value, dict):
        raise wrong_type(shown or name, "an object")
    return cast("JsonObject | None", value)


def as_object(value: object) -> JsonObject | None:
    return cast(JsonObject, value) if isinstance(value, dict) else None


def as_list(value: object) -> list[object] | None:
    return cast("list[object]", value) if isinstance(value, list) else None


def wrong_type(name: str, expected: str) -> RequestError:
    return RequestError.invalid(f"Field '{name}': expected {expected}", name)
