"""JSON schemas as grammars.

Follows JSON schema 2020-12 (and draft 7's `items` lists and `definitions`) where a grammar can, so
that whatever the grammar allows is valid; what it cannot express is refused, never ignored. Within
that the habits are llama.cpp's: an object with `properties` has no others unless it says so, the
properties come in the schema's order, all of `prefixItems` are there, and white space between the
parts is short. Rules are built from a work list, so that depth costs no recursion.
"""

from collections import deque
from collections.abc import Sequence
from typing import Any, cast

from services.engine.grammar.automaton import Automaton
from services.engine.grammar.errors import (
    GrammarInvalid,
    GrammarTooComplex,
    PatternInvalid,
    SchemaInvalid,
)
from services.engine.grammar.gbnf import parse
from services.engine.grammar.json_strings import ANYTHING, pattern_body
from services.engine.grammar.numbers import decimals, integers
from services.engine.grammar.recursion import find_endable
from services.engine.grammar.rules import Rules, literal, repeated
from services.engine.grammar.schema_arrays import Arrays
from services.engine.grammar.schema_formats import format_body
from services.engine.grammar.schema_nodes import Document, Node, check_size
from services.engine.grammar.schema_objects import Objects
from services.engine.grammar.schema_types import (
    TYPES,
    as_json,
    bounds_of,
    constants_of,
    count_of,
    type_of,
    types_of,
)

PRIMITIVES = {
    "space": '| " " | "\\n"{1,2} [ \\t]{0,20}',
    "boolean": '"true" | "false"',
    "null": '"null"',
    "integer": '"-"? whole',
    "whole": '"0" | [1-9] [0-9]{0,15}',
    "number": '"-"? whole ("." [0-9]{1,16})? ([eE] [-+]? [0-9]{1,2})?',
    "char": ANYTHING,
    "string": '"\\"" char* "\\""',
    "value": "object | array | string | number | boolean | null",
    "object": '"{" space (member ("," space member)* space)? "}"',
    "member": 'string space ":" space value',
    "array": '"[" space (value ("," space value)* space)? "]"',
}
"""Rules that any schema may use, by name; each is written only when it is needed."""
_NEEDS = {
    "integer": ("whole",),
    "number": ("whole",),
    "string": ("char",),
    "value": ("object", "array", "string", "number", "boolean", "null"),
    "object": ("space", "member"),
    "member": ("string", "space", "value"),
    "array": ("space", "value"),
}


def to_grammar(schema: object) -> str:
    """GBNF for the JSON texts that a schema allows. Raises SchemaInvalid."""
    rules = Rules()
    add_schema(rules, rules.reserve("root"), schema)
    text = rules.text()
    check_grammar(text)
    return text


def add_schema(rules: Rules, name: str, schema: object) -> None:
    """Write the rule `name`, which is reserved, and what it needs, so that it stands for the schema.

    Several schemas may share a grammar. Raises SchemaInvalid; what only the whole grammar shows is
    left to `check_grammar`.
    """
    check_size(schema)
    if not isinstance(schema, dict):
        raise SchemaInvalid("a schema must be an object")
    Converter(rules, cast("dict[str, Any]", schema)).run(name)


def check_grammar(text: str) -> None:
    """Raises SchemaInvalid for what only the whole grammar shows: schemas that refer to themselves
    without end."""
    try:
        program = parse(text)
        can_start = bool(Automaton(program).start.key.stacks)
    except GrammarInvalid as error:
        raise SchemaInvalid("the schema refers to itself without end") from error
    except GrammarTooComplex as error:
        raise SchemaInvalid("the schema has too many alternatives") from error
    if not can_start or not find_endable(program)[program.root]:
        raise SchemaInvalid("the schema refers to itself without end")


class Converter:
    """Turns one document into rules."""

    def __init__(self, rules: Rules, schema: dict[str, Any]) -> None:
        self.rules = rules
        self._document = Document(schema)
        self._names: dict[tuple[int, ...], str] = {}
        self._todo: deque[tuple[str, tuple[Node, ...]]] = deque()
        self._objects = Objects(self)
        self._arrays = Arrays(self)

    def run(self, name: str) -> None:
        """Write the rule `name` for the document, and all that it needs."""
        self._define(name, (self._document.root,))
        while self._todo:
            self._define(*self._todo.popleft())

    def name(self, conjunction: Sequence[Node], hint: str) -> str:
        """The rule for schemas that all hold; built later. No schema: any value."""
        nodes = tuple(node for node in conjunction if node.schema not in (True, {}))
        if not nodes:
            return self.primitive("value")
        key = tuple(sorted({id(node.schema) for node in nodes}))
        if key not in self._names:
            self._names[key] = self.rules.reserve(hint)
            self._todo.append((self._names[key], nodes))
        return self._names[key]

    def is_impossible(self, conjunction: Sequence[Node]) -> bool:
        """Whether a schema says outright that nothing is allowed."""
        return self._document.flatten(tuple(conjunction)).is_impossible

    def primitive(self, name: str) -> str:
        """The name of a rule of PRIMITIVES, written with all that it needs."""
        todo = [name]
        while todo:
            needed = todo.pop()
            if needed not in self.rules:
                self.rules.set(needed, PRIMITIVES[needed])
                todo += _NEEDS.get(needed, ())
        return name

    # -- a rule's body

    def _define(self, name: str, conjunction: tuple[Node, ...]) -> None:
        plain = self._document.flatten(conjunction)
        path = conjunction[0].path
        if plain.is_impossible:
            raise SchemaInvalid("nothing can satisfy this schema", path)
        if plain.choices:
            self.rules.set(name, self._one_of(name, plain.nodes, plain.choices))
            return
        nodes = plain.nodes or (Node({}, path),)
        constants = constants_of(nodes)
        if constants is not None:
            self.rules.set(name, self._constants(nodes, constants))
            return
        self.rules.set(name, self._any_type(name, nodes))

    def _one_of(
        self, name: str, nodes: tuple[Node, ...], choices: tuple[tuple[Node, ...], ...]
    ) -> str:
        """The alternatives of the first choice, each with everything else that must hold."""
        first, others = choices[0], choices[1:]
        further = tuple(self._document.choice(choice) for choice in others)
        options = [option for option in first if not self.is_impossible((option,))]
        if not options:
            raise SchemaInvalid("nothing can satisfy this schema", first[0].path)
        return " | ".join(
            self.name((*nodes, *further, option), f"{name}-{i}") for i, option in enumerate(options)
        )

    def _constants(self, nodes: tuple[Node, ...], values: list[Any]) -> str:
        path = nodes[0].path
        if any("type" in node.keywords for node in nodes):
            types = types_of(nodes)
            values = [v for v in values if type_of(v) in types or _is_number(v, types)]
        _check_constants(nodes)
        bounds, lengths = bounds_of(nodes), count_of(nodes, "minLength", "maxLength")
        values = [v for v in values if bounds.allow(v) and lengths.allow_text(v)]
        if not values:
            raise SchemaInvalid("no value of `enum` or `const` satisfies the rest", path)
        texts = dict.fromkeys(as_json(value, path) for value in values)
        return " | ".join(literal(text) for text in texts)

    def _any_type(self, name: str, nodes: tuple[Node, ...]) -> str:
        types = types_of(nodes)
        if not types:
            raise SchemaInvalid("no type is allowed by all of these schemas", nodes[0].path)
        if not _says_anything(nodes):
            return self.primitive("value")
        bodies = [self._of_type(kind, name, nodes) for kind in types]
        return " | ".join(bodies)

    def _of_type(self, kind: str, name: str, nodes: tuple[Node, ...]) -> str:
        match kind:
            case "object":
                return self._objects.body(name, nodes)
            case "array":
                return self._arrays.body(name, nodes)
            case "string":
                return self._string(nodes)
            case "number" | "integer":
                return self._number(kind, nodes)
            case _:
                return self.primitive(kind)

    # -- numbers and strings

    def _number(self, kind: str, nodes: tuple[Node, ...]) -> str:
        factors = [node.keywords["multipleOf"] for node in nodes if "multipleOf" in node.keywords]
        if any(factor != 1 for factor in factors):
            raise SchemaInvalid("`multipleOf` cannot be expressed as a grammar", nodes[0].path)
        is_whole = kind == "integer" or bool(factors)
        bounds = bounds_of(nodes)
        if bounds.is_open:
            return self.primitive("integer" if is_whole else "number")
        found = integers(bounds) if is_whole else decimals(bounds)
        if found is None:
            raise SchemaInvalid("`minimum` and `maximum` leave no number", nodes[0].path)
        return found

    def _string(self, nodes: tuple[Node, ...]) -> str:
        lengths = count_of(nodes, "minLength", "maxLength")
        patterns = [node for node in nodes if "pattern" in node.keywords]
        if patterns:
            return self._pattern(patterns, lengths.n_min, lengths.n_max)
        formats = [node.keywords["format"] for node in nodes if "format" in node.keywords]
        known = {found for name in formats if (found := format_body(name)) is not None}
        if known:
            return self._format(nodes[0], known, lengths.n_min, lengths.n_max)
        if lengths.n_min == 0 and lengths.n_max is None:
            return self.primitive("string")
        inside = repeated(self.primitive("char"), lengths.n_min, lengths.n_max)
        return f'"\\"" {inside} "\\""'

    def _pattern(self, nodes: list[Node], n_min: int, n_max: int | None) -> str:
        node = nodes[0]
        patterns = {str(other.keywords["pattern"]) for other in nodes}
        if len(patterns) > 1:
            raise SchemaInvalid("two patterns for one string cannot be expressed", node.path)
        if not isinstance(node.keywords["pattern"], str):
            raise SchemaInvalid("`pattern` must be a string", node.path)
        try:
            body, lengths = pattern_body(node.keywords["pattern"])
        except PatternInvalid as error:
            raise SchemaInvalid(f"`pattern`: {error}", node.path) from error
        if not lengths.is_within(n_min, n_max):
            raise SchemaInvalid(
                "`pattern` together with `minLength` or `maxLength` cannot be expressed unless "
                "every match has an allowed length",
                node.path,
            )
        return f'"\\"" {body} "\\""'

    def _format(self, node: Node, known: set[str], n_min: int, n_max: int | None) -> str:
        if len(known) > 1 or n_min or n_max is not None:
            raise SchemaInvalid("`format` cannot be combined with lengths or another", node.path)
        return f'"\\"" {known.pop()} "\\""'


def _check_constants(nodes: Sequence[Node]) -> None:
    for node in nodes:
        for key in ("pattern", "properties", "items", "prefixItems", "multipleOf"):
            if key in node.keywords:
                raise SchemaInvalid(
                    f"`{key}` beside `enum` or `const` cannot be followed", node.path
                )


def _is_number(value: object, types: Sequence[str]) -> bool:
    return "number" in types and type_of(value) in ("integer", "number")


def _says_anything(nodes: Sequence[Node]) -> bool:
    """Whether any keyword narrows the values down."""
    return types_of(nodes) != tuple(t for t in TYPES if t != "integer") or any(
        "type" in node.keywords for node in nodes
    )
