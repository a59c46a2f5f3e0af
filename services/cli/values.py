"""Typed access to the values of flags, and the readers that several settings share. Raises UsageError."""

import json
from pathlib import Path
from typing import TypeVar, cast

from services.cli.errors import UsageError
from services.cli.flags import Values

T = TypeVar("T")


def get(values: Values, key: str, kind: type[T]) -> T:
    """The value of a flag that always has one."""
    return cast(T, values[key])


def texts(values: Values, key: str) -> tuple[str, ...]:
    """The value of a list."""
    return cast("tuple[str, ...]", values[key])


def text_of_file(flag: str, path: str) -> str:
    """The file that a flag names."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise UsageError(f"{flag}: cannot read {path}: {reason}") from None


def text_or_file(values: Values, key: str, file_key: str) -> str:
    """What the flag says, or the file that its twin names; the file wins."""
    path = get(values, file_key, str)
    flag = "--" + file_key.replace("_", "-")
    return text_of_file(flag, path) if path else get(values, key, str)


def json_object(flag: str, text: str) -> dict[str, object]:
    """A JSON object; the empty one for an empty text."""
    try:
        value: object = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise UsageError(f"{flag}: expected a JSON object")
    return cast("dict[str, object]", value)


def number(flag: str, text: str) -> float:
    """A finite number."""
    try:
        value = float(text if "_" not in text else "no")
    except ValueError:
        value = float("nan")
    if not abs(value) < float("inf"):
        raise UsageError(f"{flag}: {text!r} is not a number")
    return value
