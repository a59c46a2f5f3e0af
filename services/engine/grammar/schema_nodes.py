"""The parts of a JSON schema document: references, conjunctions, alternatives, and what is plain.

A place in a schema is described by a conjunction: a tuple of schemas that all hold. Plain schemas
have no references, `allOf`, `anyOf` or `oneOf` left.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import unquote

from services.engine.grammar.errors import SchemaInvalid

JsonObject = dict[str, Any]
Schema = JsonObject | bool
MAX_DEPTH = 128
MAX_NODES = 50_000
COMBINING = ("$ref", "allOf", "anyOf", "oneOf")
NOT_EXPRESSED = ("not", "if", "$dynamicRef", "$recursiveRef")
"""Keywords that no grammar can follow, wherever they stand."""


@dataclass(frozen=True, slots=True)
class Node:
    """A schema and where it stands (a JSON pointer)."""

    schema: Schema
    path: str

    def child(self, *keys: str | int) -> "Node":
        """A schema within this one. Raises SchemaInvalid if that is no schema."""
        value: Any = self.schema
        for key in keys:
            value = value[key]
        return as_node(value, "/".join([self.path, *map(str, keys)]))

    @property
    def keywords(self) -> JsonObject:
        return self.schema if isinstance(self.schema, dict) else {}


def as_node(value: object, path: str) -> Node:
    if not isinstance(value, (dict, bool)):
        raise SchemaInvalid("a schema must be an object", path)
    return Node(cast(Schema, value), path)


def check_size(document: object) -> None:
    """Raises SchemaInvalid for a document that is nested too deeply or has too many parts."""
    level: list[object] = [document]
    n_nodes = 0
    for _ in range(MAX_DEPTH):
        n_nodes += len(level)
        if n_nodes > MAX_NODES:
            raise SchemaInvalid(f"the schema has more than {MAX_NODES} parts")
        level = [part for value in level for part in _parts(value)]
        if not level:
            return
    raise SchemaInvalid(f"the schema is nested deeper than {MAX_DEPTH} levels")


def _parts(value: object) -> Iterator[object]:
    if isinstance(value, dict):
        yield from cast(JsonObject, value).values()
    elif isinstance(value, list):
        yield from cast("list[object]", value)


@dataclass(frozen=True, slots=True)
class Plain:
    """What a conjunction comes to. choices: of each, one alternative must hold too."""

    nodes: tuple[Node, ...]
    choices: tuple[tuple[Node, ...], ...]
    is_impossible: bool


class Document:
    """A schema document. Raises SchemaInvalid for what is malformed or refers elsewhere."""

    def __init__(self, root: JsonObject) -> None:
        self.root = Node(root, "#")
        self._rests: dict[int, Node] = {}
        self._choices: dict[tuple[int, ...], Node] = {}

    def flatten(self, conjunction: tuple[Node, ...]) -> Plain:
        """Follow references and `allOf` until plain schemas and alternatives are left."""
        nodes: dict[int, Node] = {}
        choices: list[tuple[Node, ...]] = []
        todo: list[tuple[Node, frozenset[int]]] = [(n, frozenset()) for n in reversed(conjunction)]
        seen: set[int] = set()
        while todo:
            node, above = todo.pop()
            if node.schema is False:
                return Plain((), (), is_impossible=True)
            if id(node.schema) in above:
                raise SchemaInvalid("the schema refers to itself without end", node.path)
            if id(node.schema) in seen or node.schema is True:
                continue
            seen.add(id(node.schema))
            below = above | {id(node.schema)}
            todo += [(part, below) for part in reversed(self._conjuncts(node))]
            choices += self._alternatives(node)
            rest = self._rest(node)
            nodes[id(rest.schema)] = rest
        return Plain(tuple(nodes.values()), tuple(choices), is_impossible=False)

    def choice(self, options: tuple[Node, ...]) -> Node:
        """Alternatives as a schema; the same object each time."""
        key = tuple(id(option.schema) for option in options)
        if key not in self._choices:
            schema = {"anyOf": [option.schema for option in options]}
            self._choices[key] = Node(schema, options[0].path)
        return self._choices[key]

    def _conjuncts(self, node: Node) -> list[Node]:
        found: list[Node] = []
        if "$ref" in node.keywords:
            found.append(self._target(node))
        if "allOf" in node.keywords:
            found += _list_of(node, "allOf")
        return found

    def _alternatives(self, node: Node) -> list[tuple[Node, ...]]:
        return [tuple(_list_of(node, key)) for key in ("anyOf", "oneOf") if key in node.keywords]

    def _rest(self, node: Node) -> Node:
        """A schema without what combines others; the same object each time."""
        schema = node.keywords
        for key in NOT_EXPRESSED:
            if key in schema:
                raise SchemaInvalid(f"`{key}` cannot be expressed as a grammar", node.path)
        if not any(key in schema for key in COMBINING):
            return node
        found = self._rests.get(id(schema))
        if found is None:
            rest = {key: value for key, value in schema.items() if key not in COMBINING}
            found = self._rests[id(schema)] = Node(rest, node.path)
        return found

    def _target(self, node: Node) -> Node:
        ref = node.keywords["$ref"]
        if not isinstance(ref, str):
            raise SchemaInvalid("`$ref` must be a string", node.path)
        if ref != "#" and not ref.startswith("#/"):
            message = f"`$ref` to {ref!r}: only references within the schema (`#/…`) are followed"
            raise SchemaInvalid(message, node.path)
        value: object = self.root.schema
        for key in ref.split("/")[1:]:
            value = _member(value, unquote(key).replace("~1", "/").replace("~0", "~"))
            if value is _MISSING:
                raise SchemaInvalid(f"`$ref` to {ref!r}: there is no such part", node.path)
        return as_node(value, ref)


_MISSING = object()


def _member(value: object, key: str) -> object:
    if isinstance(value, dict):
        return cast(JsonObject, value).get(key, _MISSING)
    if isinstance(value, list) and key.isdecimal() and len(key) < 8:
        items = cast("list[object]", value)
        return items[int(key)] if int(key) < len(items) else _MISSING
    return _MISSING


def _list_of(node: Node, key: str) -> list[Node]:
    value = node.keywords[key]
    if not isinstance(value, list) or not value:
        raise SchemaInvalid(f"`{key}` must be a list of schemas that is not empty", node.path)
    return [node.child(key, i) for i in range(len(cast("list[object]", value)))]
