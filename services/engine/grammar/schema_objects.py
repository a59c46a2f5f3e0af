"""Objects of JSON schemas as GBNF: the properties in the schema's order, then any others."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from services.engine.grammar.errors import SchemaInvalid
from services.engine.grammar.json_strings import other_keys
from services.engine.grammar.rules import literal
from services.engine.grammar.schema_nodes import Node
from services.engine.grammar.schema_types import as_json, count_of

if TYPE_CHECKING:
    from services.engine.grammar.json_schema import Converter

MAX_PROPERTIES = 5000
MAX_INLINE = 3
"""Optional properties beside required ones, up to which all are written in one rule."""
_NOT_EXPRESSED = (
    "patternProperties",
    "propertyNames",
    "dependentRequired",
    "dependentSchemas",
    "dependencies",
)


@dataclass(frozen=True, slots=True)
class Member:
    """A property: the rule for key and value, and whether it must be there."""

    rule: str
    is_required: bool


class Objects:
    """Writes the bodies of object rules for a converter."""

    def __init__(self, converter: "Converter") -> None:
        self._converter = converter

    def body(self, name: str, nodes: Sequence[Node]) -> str:
        """The text of an object that all nodes allow."""
        _check(nodes)
        self._converter.primitive("space")
        required = _required(nodes)
        names = list(
            dict.fromkeys(key for node in nodes for key in (*_properties(node), *required))
        )
        if len(names) > MAX_PROPERTIES:
            raise SchemaInvalid(
                f"an object may have at most {MAX_PROPERTIES} properties", nodes[0].path
            )
        members = [
            member
            for key in names
            if (member := self._member(name, nodes, key, is_required=key in required))
        ]
        other = self._other(name, nodes, names)
        _check_counts(nodes, members, has_other=other is not None)
        if not members and other is None:
            return '"{" space "}"'
        return f'"{{" space {self._sequence(name, members, other)}"}}"'

    def _member(
        self, name: str, nodes: Sequence[Node], key: str, *, is_required: bool
    ) -> Member | None:
        """None: the property cannot be there."""
        parts = [part for node in nodes if (part := _property(node, key))]
        if self._converter.is_impossible(parts):
            if is_required:
                raise SchemaInvalid(f"the required property {key!r} is not allowed", nodes[0].path)
            return None
        hint = f"{name}-{key}" if name != "root" else key
        value = self._converter.name(parts, hint)
        text = literal(as_json(key, nodes[0].path))
        body = f'{text} space ":" space {value}'
        return Member(self._converter.rules.add(f"{hint}-kv", body), is_required)

    def _other(self, name: str, nodes: Sequence[Node], names: list[str]) -> str | None:
        """The rule for further properties; None: there are none."""
        given = [node for node in nodes if "additionalProperties" in node.keywords]
        if not given and any("properties" in node.keywords for node in nodes):
            return None
        parts = [node.child("additionalProperties") for node in given]
        if self._converter.is_impossible(parts):
            return None
        value = self._converter.name(parts, f"{name}-value")
        if not names and value == "value":
            return self._converter.primitive("member")
        if not names:
            key = self._converter.primitive("string")
        else:
            key = self._other_key(name, names, nodes[0].path)
        return self._converter.rules.add(f"{name}-other", f'{key} space ":" space {value}')

    def _other_key(self, name: str, names: list[str], path: str) -> str:
        try:
            inside = other_keys(names)
        except ValueError as error:
            raise SchemaInvalid(f"`additionalProperties`: {error}", path) from error
        return self._converter.rules.add(f"{name}-key", f'"\\"" {inside} "\\""')

    # -- sequences

    def _sequence(self, name: str, members: list[Member], other: str | None) -> str:
        at = next((i for i, member in enumerate(members) if member.is_required), None)
        n_optional = sum(not member.is_required for member in members)
        if at is None or n_optional > MAX_INLINE:
            return self._chain(name, members, other)
        others = "" if other is None else f' ("," space {other})*'
        before = "".join(f'({member.rule} "," space)? ' for member in members[:at])
        after = "".join(_following(member) for member in members[at + 1 :])
        return f"{before}{members[at].rule}{after}{others} space "

    def _chain(self, name: str, members: list[Member], other: str | None) -> str:
        """A rule for each place at which members may go on, so that commas are written once."""
        rules = self._converter.rules
        tail = ""
        if other is not None:
            tail = rules.add(f"{name}-others", f'{other} ("," space {other})*')
        must_follow = False
        for member in reversed(members):
            more = f'"," space {tail}'
            after = "" if not tail else more if must_follow else f"({more})?"
            skip = f" | {tail}" if tail and not member.is_required else ""
            tail = rules.add(f"{name}-from", f"{member.rule} {after}{skip}")
            must_follow = must_follow or member.is_required
        return f"{tail} space " if must_follow else f"({tail} space)? "


def _following(member: Member) -> str:
    return f' "," space {member.rule}' if member.is_required else f' ("," space {member.rule})?'


def _check(nodes: Sequence[Node]) -> None:
    for node in nodes:
        for key in _NOT_EXPRESSED:
            if key in node.keywords:
                raise SchemaInvalid(f"`{key}` cannot be expressed as a grammar", node.path)


def _check_counts(nodes: Sequence[Node], members: list[Member], *, has_other: bool) -> None:
    counts = count_of(nodes, "minProperties", "maxProperties")
    if counts.n_min > sum(member.is_required for member in members):
        raise SchemaInvalid("`minProperties` cannot be expressed as a grammar", nodes[0].path)
    if counts.n_max is not None and (has_other or counts.n_max < len(members)):
        raise SchemaInvalid("`maxProperties` cannot be expressed as a grammar", nodes[0].path)


def _required(nodes: Sequence[Node]) -> list[str]:
    found: list[str] = []
    for node in nodes:
        value = node.keywords.get("required", [])
        if isinstance(value, bool):
            continue  # draft 3 wrote it at the property
        if not isinstance(value, list) or not all(isinstance(key, str) for key in value):
            raise SchemaInvalid("`required` must be a list of strings", node.path)
        found += cast("list[str]", value)
    return list(dict.fromkeys(found))


def _properties(node: Node) -> dict[str, Any]:
    value = node.keywords.get("properties", {})
    if not isinstance(value, dict):
        raise SchemaInvalid("`properties` must be an object", node.path)
    return cast("dict[str, Any]", value)


def _property(node: Node, key: str) -> Node | None:
    """What a node says of a property; None: nothing."""
    if key in _properties(node):
        return node.child("properties", key)
    return node.child("additionalProperties") if "additionalProperties" in node.keywords else None
