"""Grammar rules for free text that ends before a marker, and for JSON schemas inside a larger grammar."""

import re
from hashlib import sha256
from typing import Any, cast

from services.engine.grammar.charsets import EVERYTHING, CharSet, difference, of_text
from services.engine.grammar.errors import SchemaInvalid
from services.engine.grammar.json_schema import PRIMITIVES, to_grammar
from services.engine.grammar.rules import Rules, literal, set_of

SPACE = "space"
_LEXEME = re.compile(
    r'"(?:[^"\\]|\\.)*"|\[(?:[^\]\\]|\\.)*\]|\{[^{}]*\}|(?P<name>[a-zA-Z][a-zA-Z0-9-]*)', re.DOTALL
)


def space(rules: Rules) -> str:
    """A little whitespace, or none."""
    return shared(rules, SPACE)


def shared(rules: Rules, name: str) -> str:
    """A rule that schemas use, too."""
    if name not in rules:
        rules.set(name, PRIMITIVES[name])
    return name


def exact(text: str) -> str:
    """A text as an element; nothing for an empty one."""
    return literal(text) if text else '""'


def until(rules: Rules, stop: str) -> str:
    """Any text that does not hold `stop`: one rule per character of it that may have come."""
    prefix = f"until-{sha256(stop.encode('utf-8', 'replace')).hexdigest()[:8]}"
    names = [f"{prefix}-{number}" for number in range(len(stop))]
    if names[0] in rules:
        return names[0]
    fallback = _fallbacks(stop)
    for number, name in enumerate(names):
        rules.set(name, _state(stop, number, names, fallback))
    return names[0]


def _state(stop: str, number: int, names: list[str], fallback: list[int]) -> str:
    """What may follow after `number` characters of the marker; nothing may complete it."""
    targets: dict[str, int] = {}
    for char in dict.fromkeys(stop):
        targets[char] = _step(stop, number, char, fallback)
    groups: dict[int, str] = {}
    for char, target in targets.items():
        if target < len(stop):
            groups[target] = groups.get(target, "") + char
    others: CharSet = difference(EVERYTHING, of_text("".join(targets)))
    options = [f"{set_of(others)} {names[0]}"]
    options += [f"{set_of(of_text(chars))} {names[target]}" for target, chars in groups.items()]
    return "(" + " | ".join(options) + ")?"


def _step(stop: str, number: int, char: str, fallback: list[int]) -> int:
    """How much of the marker has come when `char` follows `number` characters of it."""
    while number and stop[number] != char:
        number = fallback[number - 1]
    return number + 1 if stop[number] == char else 0


def _fallbacks(stop: str) -> list[int]:
    """For every beginning of the marker, the longest end of it that is a beginning, too."""
    found = [0] * len(stop)
    length = 0
    for number in range(1, len(stop)):
        while length and stop[number] != stop[length]:
            length = found[length - 1]
        length += stop[number] == stop[length]
        found[number] = length
    return found


def schema_rule(rules: Rules, schema: object, hint: str) -> str:
    """A rule for the JSON texts of a schema. Raises SchemaInvalid."""
    return embedded(rules, to_grammar(schema), hint)


def embedded(rules: Rules, grammar: str, hint: str) -> str:
    """A rule for what a whole grammar of a schema allows."""
    prefix = rules.reserve(hint)
    for line in grammar.splitlines():
        name, _, body = line.partition(" ::= ")
        own = _renamed(name, prefix)
        if name not in PRIMITIVES or own not in rules:
            rules.set(own, _LEXEME.sub(lambda found: _in_body(found, prefix), body))
    return prefix


def _in_body(found: re.Match[str], prefix: str) -> str:
    return found.group() if found["name"] is None else _renamed(found["name"], prefix)


def _renamed(name: str, prefix: str) -> str:
    if name == "root":
        return prefix
    return name if name in PRIMITIVES else f"{prefix}-{name}"


def arguments_rule(rules: Rules, parameters: object, hint: str) -> str:
    """A rule for a function's arguments. What no grammar can say of them is left to the model."""
    try:
        return schema_rule(rules, arguments_schema(parameters), hint)
    except SchemaInvalid:
        return schema_rule(rules, {"type": "object"}, hint)


def members_of(schema: object) -> tuple[dict[str, Any], frozenset[str]]:
    """The properties of a schema, and those that are required; nothing where it says something odd."""
    own = cast("dict[str, Any]", schema) if isinstance(schema, dict) else {}
    properties, required = own.get("properties"), own.get("required")
    names = cast("list[object]", required) if isinstance(required, list) else []
    found = cast("dict[str, Any]", properties) if isinstance(properties, dict) else {}
    return found, frozenset(name for name in names if isinstance(name, str))


def arguments_schema(parameters: object) -> dict[str, Any]:
    """The schema of a function's arguments: always an object."""
    if not isinstance(parameters, dict) or not parameters:
        return {"type": "object", "properties": {}}
    schema = cast("dict[str, Any]", parameters)
    return (
        schema if "type" in schema or "properties" not in schema else {"type": "object", **schema}
    )
