"""Keywords of plain schemas, read and combined: the strictest of each counts."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, cast

import orjson

from services.engine.grammar.errors import SchemaInvalid
from services.engine.grammar.numbers import MAX_BOUND_DIGITS, MAX_DIGITS, Bounds
from services.engine.grammar.schema_nodes import Node

TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")
_HINTS = {
    "object": ("properties", "additionalProperties", "required", "minProperties", "maxProperties"),
    "array": ("items", "prefixItems", "minItems", "maxItems", "uniqueItems"),
    "string": ("pattern", "minLength", "maxLength", "format"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}
MAX_COUNT = 1_000_000


def types_of(nodes: Sequence[Node]) -> tuple[str, ...]:
    """The types that a value may have. Without `type`, keywords hint at it (as in llama.cpp);
    without those, any."""
    given = [_given_types(node) for node in nodes if "type" in node.keywords]
    if not given:
        hinted = [t for t, keys in _HINTS.items() if any(_has(node, keys) for node in nodes)]
        return tuple(hinted) or tuple(t for t in TYPES if t != "integer")
    allowed = [t for t in TYPES if all(_covers(types, t) for types in given)]
    return tuple(t for t in allowed if t != "integer" or "number" not in allowed)


def _covers(types: Sequence[str], wanted: str) -> bool:
    return wanted in types or (wanted == "integer" and "number" in types)


def _has(node: Node, keys: Sequence[str]) -> bool:
    return any(key in node.keywords for key in keys)


def _given_types(node: Node) -> list[str]:
    value = node.keywords["type"]
    types = cast("list[object]", value if isinstance(value, list) else [value])
    if not types:
        raise SchemaInvalid("`type` must not be empty", node.path)
    for name in types:
        if name not in TYPES:
            raise SchemaInvalid(f"`type` must be one of {', '.join(TYPES)}", node.path)
    nullable = ["null"] if node.keywords.get("nullable") is True else []
    return cast("list[str]", types) + nullable


def constants_of(nodes: Sequence[Node]) -> list[Any] | None:
    """The values that `const` and `enum` leave; None: they say nothing."""
    found: list[Any] | None = None
    for node in nodes:
        for values in _constants(node):
            texts = {_canonical(value, node.path) for value in values}
            left = values if found is None else found
            found = [value for value in left if _canonical(value, node.path) in texts]
    return found


def _constants(node: Node) -> list[list[Any]]:
    found: list[list[Any]] = []
    if "const" in node.keywords:
        found.append([node.keywords["const"]])
    if "enum" in node.keywords:
        values = node.keywords["enum"]
        if not isinstance(values, list) or not values:
            raise SchemaInvalid("`enum` must be a list that is not empty", node.path)
        found.append(cast("list[Any]", values))
    return found


def _canonical(value: object, path: str) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return as_json(value, path)


def as_json(value: object, path: str) -> str:
    """Compact JSON text."""
    try:
        return orjson.dumps(value).decode()
    except (TypeError, ValueError, RecursionError) as error:
        raise SchemaInvalid(f"a value cannot be written as JSON: {error}", path) from error


def type_of(value: object) -> str:
    """The JSON type of a value."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "integer" if value.is_integer() else "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


@dataclass(frozen=True, slots=True)
class Count:
    """n_max None: any number."""

    n_min: int
    n_max: int | None

    def allow_text(self, value: object) -> bool:
        """Whether a value is no text, or one of allowed length."""
        if not isinstance(value, str):
            return True
        return len(value) >= self.n_min and (self.n_max is None or len(value) <= self.n_max)


def count_of(nodes: Sequence[Node], min_key: str, max_key: str) -> Count:
    """The strictest of two keywords. Raises SchemaInvalid if they leave nothing."""
    lows = [n for node in nodes if (n := _count(node, min_key)) is not None]
    highs = [n for node in nodes if (n := _count(node, max_key)) is not None]
    found = Count(max(lows, default=0), min(highs) if highs else None)
    if found.n_max is not None and found.n_min > found.n_max:
        raise SchemaInvalid(f"`{min_key}` is greater than `{max_key}`", nodes[0].path)
    return found


def _count(node: Node, key: str) -> int | None:
    value = node.keywords.get(key)
    if value is None:
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise SchemaInvalid(f"`{key}` must be a whole number from 0", node.path)
    return min(value, MAX_COUNT) if key.startswith("max") else _bounded(value, key, node)


def _bounded(value: int, key: str, node: Node) -> int:
    if value > MAX_COUNT:
        raise SchemaInvalid(f"`{key}` may be at most {MAX_COUNT}", node.path)
    return value


def bounds_of(nodes: Sequence[Node]) -> Bounds:
    """The strictest of `minimum`, `maximum` and their exclusive forms (also as flags, draft 4)."""
    lows = [b for node in nodes for b in _side(node, "minimum", "exclusiveMinimum")]
    highs = [b for node in nodes for b in _side(node, "maximum", "exclusiveMaximum")]
    low, is_above = max(lows, default=(None, False))
    high, below = min(((value, not excl) for value, excl in highs), default=(None, True))
    return Bounds(low, high, is_above, not below)


def _side(node: Node, inclusive: str, exclusive: str) -> list[tuple[Decimal, bool]]:
    value, flag = node.keywords.get(inclusive), node.keywords.get(exclusive)
    found: list[tuple[Decimal, bool]] = []
    if value is not None:
        found.append((_decimal(node, inclusive, value), flag is True))
    if flag is not None and not isinstance(flag, bool):
        found.append((_decimal(node, exclusive, flag), True))
    return found


def _decimal(node: Node, key: str, value: object) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise SchemaInvalid(f"`{key}` must be a number", node.path)
    number = Decimal(repr(value))
    whole, _, fraction = (
        f"{abs(number):f}".partition(".") if abs(number) < 10**30 else ("9" * 30, "", "")
    )
    if len(whole) > MAX_BOUND_DIGITS or len(fraction.rstrip("0")) > MAX_DIGITS:
        raise SchemaInvalid(f"`{key}` has more digits than can be followed", node.path)
    return number
