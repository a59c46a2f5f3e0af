"""Readers of single JSON values of a request: each takes a property's name and its value.

Hard limits refuse, soft limits bring a number to the nearest allowed one (llama-server's rules). A
number with a fraction is cut where a whole one is wanted; a boolean is no number. All raise
RequestError naming the property.
"""

import math
from collections.abc import Callable
from typing import Any, cast

from schemas.errors import RequestError

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
FLOAT32_MAX = 3.4028234e38
MAX_WORDS = 1024
MAX_WORD_CHARS = 65_536
MAX_BREAKERS = 64
"""Each one costs llama.cpp a walk through the vocabulary."""

Reader = Callable[[str, object], Any]


def wrong(name: str, message: str) -> RequestError:
    return RequestError.invalid(f"Field '{name}': {message}", name)


def _number(name: str, value: object) -> int | float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise wrong(name, "expected a number")
    if isinstance(value, float) and math.isnan(value):
        raise wrong(name, "expected a number")
    return value


def _shown(value: float) -> str:
    return f"{value}" if abs(value) < 1e300 else "a number that is too large"


def _limited(name: str, value: float, low: float, high: float, *, is_hard: bool) -> float:
    if is_hard and not low <= value <= high:
        raise wrong(name, f"value must be between {low} and {high}, but got {_shown(value)}")
    return min(max(value, low), high)


def whole(low: int, high: int = INT32_MAX, *, is_hard: bool = True) -> Reader:
    """Whole numbers from low to high."""

    def read(name: str, value: object) -> int:
        limited = _limited(name, _number(name, value), low, high, is_hard=is_hard)
        return int(limited)

    return read


def real(low: float = -FLOAT32_MAX, high: float = FLOAT32_MAX, *, is_hard: bool = False) -> Reader:
    """Numbers from low to high."""

    def read(name: str, value: object) -> float:
        return float(_limited(name, _number(name, value), low, high, is_hard=is_hard))

    return read


def positive(high: float) -> Reader:
    """Numbers above 0."""

    def read(name: str, value: object) -> float:
        number = _number(name, value)
        if number <= 0:
            raise wrong(name, f"value must be greater than 0, but got {_shown(number)}")
        return float(min(number, high))

    return read


def flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise wrong(name, "expected a boolean")
    return value


def seed(name: str, value: object) -> int:
    """Any number as unsigned 32 bits; −1 becomes the random seed."""
    number = _number(name, value)
    if isinstance(number, float) and math.isinf(number):
        raise wrong(name, "expected a whole number")
    return int(number) & 0xFFFFFFFF


def one_of(*names: str) -> Reader:
    def read(name: str, value: object) -> str:
        if not isinstance(value, str) or value not in names:
            raise wrong(name, f"use one of {', '.join(names)}")
        return value

    return read


def words(name: str, value: object) -> tuple[str, ...]:
    """A list of texts, of bounded number and length."""
    if not isinstance(value, list):
        raise wrong(name, "expected a list of strings")
    items = cast("list[object]", value)
    if not all(isinstance(item, str) for item in items):
        raise wrong(name, "expected a list of strings")
    texts = cast("list[str]", items)
    if len(texts) > MAX_WORDS or any(len(text) > MAX_WORD_CHARS for text in texts):
        raise wrong(name, f"at most {MAX_WORDS} strings of {MAX_WORD_CHARS} characters are taken")
    return tuple(texts)


def breakers(name: str, value: object) -> tuple[str, ...]:
    found = words(name, value)
    if not 0 < len(found) <= MAX_BREAKERS:
        raise wrong(name, f"expected a list of 1 to {MAX_BREAKERS} strings")
    return found


def stop_words(name: str, value: object) -> tuple[str, ...]:
    """One text or a list of them; empty ones say nothing."""
    found = words(name, [value] if isinstance(value, str) else value)
    return tuple(text for text in found if text)


def adapters(name: str, value: object) -> tuple[tuple[int, float], ...]:
    """`lora`: a list of objects with `id` and `scale`."""
    if not isinstance(value, list):
        raise wrong(name, "expected a list of objects with 'id' and 'scale'")
    items = cast("list[object]", value)
    return tuple(_adapter(name, item) for item in items[:MAX_WORDS])


def _adapter(name: str, item: object) -> tuple[int, float]:
    if not isinstance(item, dict):
        raise wrong(name, "expected a list of objects with 'id' and 'scale'")
    given = cast("dict[str, object]", item)
    return whole(-1)(name, given.get("id", -1)), real()(name, given.get("scale", 0.0))
