"""JSON schemas as grammars: what they allow is valid, and what is refused is named."""

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.engine.grammar.errors import SchemaInvalid
from services.engine.grammar.json_schema import add_schema, check_grammar, to_grammar
from services.engine.grammar.rules import Rules
from tests.support.grammars import allows, matches, random_text

NODE = {
    "type": "object",
    "properties": {"next": {"$ref": "#/$defs/node"}, "leaf": {"type": "integer"}},
}
OPEN = {
    "type": "object",
    "properties": {"ab": {"type": "integer"}, "b": {}},
    "additionalProperties": {"type": "string"},
}
ALL_OF = {
    "allOf": [{"properties": {"a": {"type": "integer"}}, "required": ["a"]}, {"$ref": "#/$defs/b"}]
}
CASES: list[tuple[object, list[object], list[object]]] = [
    ({}, [1, "x", None, True, [1, {"a": []}], {"b": -1.5e3}], []),
    ({"type": "object"}, [{}, {"a": {"b": [1]}}], [[], 1]),
    ({"type": "array"}, [[], [1, "a", {}]], [{}]),
    ({"type": "string"}, ["", 'a"\\\n\té😀'], [1]),
    ({"type": "boolean"}, [True, False], [0, "true"]),
    ({"type": "null"}, [None], [0, False]),
    ({"type": "integer"}, [0, -5, 12345], [1.5, "1"]),
    ({"type": "number"}, [0, -5, 1.5, 1e-7], ["1"]),
    ({"type": ["string", "null"]}, ["a", None], [1]),
    ({"type": ["integer", "number"]}, [1, 1.5], [None]),
    ({"type": "string", "nullable": True}, ["a", None], [1]),
    ({"const": "42"}, ["42"], [42, "4"]),
    ({"const": {"a": [1, "é"]}}, [{"a": [1, "é"]}], [{}]),
    ({"enum": ["red", 1, None, [1]]}, ["red", 1, None, [1]], ["blue", 2]),
    ({"type": "string", "enum": ["a", 1]}, ["a"], [1]),
    ({"enum": [1, 5, 9, "abc", "a"], "minimum": 4, "maxLength": 1}, [5, 9, "a"], [1, "abc"]),
    ({"allOf": [{"enum": [1, 2, 3]}, {"enum": [2, 3, 4]}]}, [2, 3], [1, 4]),
    ({"type": "integer", "minimum": 10, "maximum": 20}, [10, 15, 20], [9, 21]),
    ({"type": "integer", "exclusiveMinimum": 10, "exclusiveMaximum": 20}, [11, 19], [10, 20]),
    ({"type": "integer", "minimum": 10, "exclusiveMinimum": True}, [11], [10]),
    ({"type": "number", "minimum": 0.5, "maximum": 2}, [0.5, 1, 1.99, 2], [0.4, 2.1]),
    ({"minimum": 5}, [5, 7.5], [4, "5"]),
    ({"type": "number", "multipleOf": 1}, [3], [3.5]),
    ({"type": "string", "minLength": 2, "maxLength": 3}, ["ab", "a\n😀"], ["a", "abcd"]),
    ({"type": "string", "maxLength": 0}, [""], ["a"]),
    ({"type": "string", "pattern": "^[a-c]+(-\\d{2})?$"}, ["abc", "a-12"], ["", "abd", "a-1", "xa"]),
    ({"type": "string", "pattern": "b+"}, ["b", "abc", "bbb"], ["ac", ""]),
    ({"type": "string", "pattern": "^a|b$"}, ["ax", "xb"], ["xa"]),
    ({"type": "string", "pattern": '^["\\\\\\n]$'}, ['"', "\\", "\n"], ["a"]),
    ({"type": "string", "pattern": "^(?:a|(b.)){2}$"}, ["aa", "abx", "bxby"], ["a", "ab"]),
    ({"type": "string", "pattern": "^[a-z]{2,4}$", "maxLength": 5}, ["abcd"], ["abcde"]),
    ({"type": "string", "pattern": "^[^a]\\S$"}, ["bé", "\nx"], ["ax", "b "]),
    ({"pattern": "^x$"}, ["x"], ["y", 1]),
    ({"type": "string", "format": "date"}, ["2024-02-28", "1999-12-31"], ["2024-02-30", "2024-13-01"]),
    ({"type": "string", "format": "time"}, ["23:59:59Z", "01:02:03.123+02:00"], ["24:00:00Z", "01:02"]),
    ({"type": "string", "format": "date-time"}, ["2024-02-28T01:02:03Z"], ["2024-02-28"]),
    ({"type": "string", "format": "uuid"}, ["123e4567-e89b-12d3-a456-426614174000"], ["123e4567"]),
    ({"type": "string", "format": "email"}, ["no address"], [1]),
    ({"items": {"type": "integer"}}, [[], [1, 2]], [["a"], {}]),
    ({"type": "array", "minItems": 1, "maxItems": 2}, [[1], ["a", {}]], [[], [1, 2, 3]]),
    ({"type": "array", "items": {"type": "null"}, "maxItems": 0}, [[]], [[None]]),
    ({"items": [{"type": "integer"}]}, [[-3000]], [[], [1, 2]]),
    ({"prefixItems": [{"type": "integer"}, {}], "items": {"type": "string"}}, [[1, 2], [1, 2, "a"]], [[1], [1, 2, 3]]),
    ({"prefixItems": [{}], "items": False}, [[1]], [[1, 2], []]),
    ({"prefixItems": [{}], "minItems": 2}, [[1, "a"]], [[1], [1, 2, 3]]),
    ({"items": False}, [[]], [[1]]),
    ({"uniqueItems": True, "maxItems": 1}, [[], [1]], [[1, 1]]),
    ({"properties": {"a": {"type": "integer"}, "b": {}}, "required": ["a"]}, [{"a": 1}, {"a": 1, "b": None}], [{}, {"b": 1}, {"a": 1, "c": 1}]),
    ({"properties": {"a": {}, "b": {}, "c": {}}}, [{}, {"a": 1}, {"b": 1}, {"c": 1}, {"a": 1, "c": 1}, {"a": 1, "b": 1, "c": 1}], [{"d": 1}]),
    ({"properties": {"a": {}, "b": {}, "c": {}}, "required": ["b"]}, [{"b": 1}, {"a": 1, "b": 1}, {"b": 1, "c": 1}, {"a": 1, "b": 1, "c": 1}], [{"a": 1}, {"a": 1, "c": 1}]),
    ({"properties": {"a": False, "b": True}}, [{}, {"b": 1}], [{"a": 1}]),
    ({"properties": {'q"\\é': {}}, "required": ['q"\\é']}, [{'q"\\é': 1}], [{}]),
    ({"properties": {}}, [{}], [{"a": 1}]),
    ({"additionalProperties": False}, [{}], [{"a": 1}]),
    ({"additionalProperties": {"type": "integer"}}, [{}, {"x": 1, "y": 2}], [{"x": "a"}]),
    ({"required": ["a"]}, [{"a": 1}, {"a": 1, "b": 2}], [{}]),
    (OPEN, [{}, {"ab": 1}, {"a": "x"}, {"abc": "x"}, {"ab": 1, "b": 2, "c": "x", "": "y"}, {"\n": "z"}], [{"ab": "x"}, {"c": 1}]),
    ({"properties": {"\n": {}, "a": {}}, "additionalProperties": True}, [{"\n": 1, "\t": 2}, {"\nx": 1}, {"x": 1}], []),
    ({"minProperties": 1, "properties": {"a": {}}, "required": ["a"]}, [{"a": 1}], [{}]),
    ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, [1, "a"], [None]),
    ({"oneOf": [{"const": 1}, {"type": "null"}]}, [1, None], [2]),
    ({"type": "object", "properties": {"k": {"const": 1}}, "required": ["k"], "anyOf": [{"properties": {"a": {"type": "integer"}}, "required": ["a"]}, {"properties": {"b": {"type": "null"}}, "required": ["b"]}]}, [{"k": 1, "a": 2}, {"k": 1, "b": None}], [{"k": 1}, {"a": 2}, {"k": 1, "b": 2}]),
    ({"anyOf": [{"minimum": 5}, False], "type": "integer"}, [5], [4, 5.5]),
    (ALL_OF | {"$defs": {"b": {"properties": {"b": {"const": 2}}, "required": ["b"]}}}, [{"a": 1, "b": 2}], [{"a": 1}, {"b": 2}]),
    ({"allOf": [{"type": "integer", "minimum": 1}, {"maximum": 3}]}, [1, 3], [0, 4]),
    ({"allOf": [{"properties": {"a": {"minimum": 1, "type": "integer"}}}, {"properties": {"a": {"maximum": 5}}}]}, [{}, {"a": 3}], [{"a": 0}, {"a": 6}]),
    ({"properties": {"a": {}}, "allOf": [{"additionalProperties": {"type": "integer"}}]}, [{"a": 1, "b": 2}], [{"a": "x"}, {"b": "x"}]),
    ({"$ref": "#/$defs/node", "$defs": {"node": NODE}}, [{}, {"next": {"next": {"leaf": 1}}}], [{"next": 1}]),
    ({"type": "array", "items": {"$ref": "#"}}, [[], [[], [[]]]], [1]),
    ({"$ref": "#/definitions/a~1b~0%20c", "definitions": {"a/b~ c": {"const": 1}}}, [1], [2]),
    ({"$ref": "#/anyOf/1", "anyOf": [{}, {"const": 1}]}, [1], [2]),
    ({"title": "T", "description": "d", "default": 1, "examples": [1], "$schema": "x", "type": "integer"}, [1], ["x"]),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "good", "bad"), CASES, ids=[str(c[0])[:60] for c in CASES])
def test_what_schemas_allow(schema: object, good: list[object], bad: list[object]) -> None:
    assert [value for value in good if not allows(schema, value)] == []
    assert [value for value in bad if allows(schema, value)] == []


@pytest.mark.parametrize("schema", [case[0] for case in CASES], ids=[str(c[0])[:60] for c in CASES])
def test_random_texts_are_valid(schema: dict[str, Any]) -> None:
    grammar = to_grammar(schema)
    texts = [random_text(grammar, seed) for seed in range(6)]
    assert any(texts)
    is_nullable = schema.get("nullable")
    for text in texts:
        if text is not None and not (is_nullable and text == "null"):
            _validate(json.loads(text), schema)


def _validate(value: object, schema: object) -> None:
    draft = (
        jsonschema.Draft4Validator
        if "exclusiveMinimum" in str(schema) and "True" in str(schema)
        else None
    )
    is_old = isinstance(schema, dict) and isinstance(schema.get("items"), list)
    kind = draft or (jsonschema.Draft7Validator if is_old else jsonschema.Draft202012Validator)
    kind({k: v for k, v in schema.items() if k != "$schema"}).validate(value)  # type: ignore[union-attr]


def test_white_space_is_short() -> None:
    grammar = to_grammar({"properties": {"a": {"type": "integer"}}, "required": ["a"]})
    assert matches(grammar, '{\n  "a" : 1\n}')
    assert matches(grammar, '{"a":1 }')
    assert not matches(grammar, '{\n\n\n"a": 1}')
    assert not matches(grammar, '{  "a": 1}')
    assert not matches(grammar, '{"a": 1} ')


DEEP: object = {"type": "integer"}
for _ in range(3000):
    DEEP = {"type": "array", "items": DEEP}


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ([], "#: a schema must be an object"),
        (None, "#: a schema must be an object"),
        ({"properties": {"a": 1}}, "#/properties/a: a schema must be an object"),
        ({"type": "kaboom"}, "`type` must be one of"),
        ({"type": 123}, "`type` must be one of"),
        ({"type": []}, "`type` must not be empty"),
        ({"enum": []}, "`enum` must be a list"),
        ({"enum": "x"}, "`enum` must be a list"),
        ({"anyOf": []}, "`anyOf` must be a list"),
        ({"anyOf": {}}, "`anyOf` must be a list"),
        ({"properties": []}, "`properties` must be an object"),
        ({"required": "a"}, "`required` must be a list"),
        ({"type": "string", "minLength": -1}, "`minLength` must be a whole number"),
        ({"type": "string", "minLength": "2"}, "`minLength` must be a whole number"),
        ({"type": "string", "minLength": 3, "maxLength": 2}, "`minLength` is greater"),
        ({"type": "array", "minItems": 10**9}, "`minItems` may be at most"),
        ({"type": "integer", "minimum": "a"}, "`minimum` must be a number"),
        ({"type": "integer", "minimum": True}, "`minimum` must be a number"),
        ({"type": "integer", "minimum": 1e300}, "more digits"),
        ({"type": "integer", "minimum": 5, "maximum": 4}, "leave no number"),
        ({"type": "string", "pattern": 1}, "`pattern` must be a string"),
        ({"type": "string", "pattern": "^(a$"}, "`pattern`: a group is never closed"),
        ({"type": "string", "pattern": "^(?=a)a$"}, "`pattern`: look-around"),
        ({"type": "string", "pattern": "a^b"}, "`^` and `$` are only supported"),
        ({"type": "string", "pattern": "^[]$"}, "no characters"),
        ({"type": "string", "pattern": "^a+$", "maxLength": 3}, "every match has an allowed length"),
        ({"allOf": [{"pattern": "a"}, {"pattern": "b"}]}, "two patterns"),
        ({"type": "string", "format": "date", "maxLength": 3}, "`format` cannot be combined"),
        ({"not": {}}, "`not` cannot be expressed"),
        ({"if": {}, "then": {}}, "`if` cannot be expressed"),
        ({"type": "array", "uniqueItems": True}, "`uniqueItems` cannot be expressed"),
        ({"type": "array", "contains": {}}, "`contains` cannot be expressed"),
        ({"type": "number", "multipleOf": 0.5}, "`multipleOf` cannot be expressed"),
        ({"type": "object", "patternProperties": {}}, "`patternProperties` cannot be expressed"),
        ({"type": "object", "minProperties": 1}, "`minProperties` cannot be expressed"),
        ({"type": "object", "maxProperties": 1}, "`maxProperties` cannot be expressed"),
        ({"enum": ["a"], "pattern": "a"}, "beside `enum` or `const`"),
        ({"const": "a", "type": "integer"}, "no value of `enum` or `const`"),
        ({"allOf": [{"type": "string"}, {"type": "null"}]}, "no type is allowed"),
        ({"properties": {"a": False}, "required": ["a"]}, "the required property 'a'"),
        ({"items": False, "minItems": 1}, "`minItems` asks for more"),
        ({"anyOf": [False]}, "nothing can satisfy"),
        ({"$ref": 1}, "`$ref` must be a string"),
        ({"$ref": "https://example.com/s.json"}, "only references within"),
        ({"$ref": "#/$defs/none"}, "there is no such part"),
        ({"$ref": "#"}, "refers to itself without end"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}, "refers to itself"),
        ({"anyOf": [{"$ref": "#"}]}, "refers to itself without end"),
        ({"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}, "refers to itself without end"),
        ({"properties": {"a": {"$ref": "#"}}, "required": ["a"]}, "refers to itself without end"),
        ({"properties": {"n" * 200: {}}, "additionalProperties": True}, "more than 100 characters"),
        (DEEP, "nested deeper than 128 levels"),
        ({"enum": list(range(60_000))}, "more than 50000 parts"),
        ({"enum": ["x" * 300_000]}, "the schema is too large"),
        ({"allOf": [{"anyOf": [{"const": i * 10 + j} for j in range(10)]} for i in range(9)]}, "#"),
    ],
)  # fmt: skip
def test_what_is_refused(schema: object, message: str) -> None:
    with pytest.raises(SchemaInvalid) as caught:
        to_grammar(schema)
    assert message in str(caught.value)


def test_several_schemas_share_a_grammar() -> None:
    rules = Rules()
    root = rules.reserve("root")
    names = [rules.reserve("a"), rules.reserve("a")]
    add_schema(rules, names[0], {"type": "array", "items": {"type": "integer"}})
    add_schema(rules, names[1], {"type": "object", "properties": {"a": {}}, "required": ["a"]})
    rules.set(root, " | ".join(names))
    check_grammar(rules.text())
    assert matches(rules.text(), "[1,2]")
    assert matches(rules.text(), '{"a":null}')


# ---- any schema

SCALARS: st.SearchStrategy[Any] = st.one_of(
    st.builds(lambda low, n: {"type": "integer", "minimum": low, "maximum": low + n}, st.integers(-999, 999), st.integers(0, 500)),
    st.builds(lambda low, n: {"type": "string", "minLength": low, "maxLength": low + n}, st.integers(0, 3), st.integers(0, 4)),
    st.lists(st.one_of(st.text(max_size=5), st.integers(-9, 9), st.none(), st.booleans()), min_size=1, max_size=3).map(lambda values: {"enum": values}),
    st.sampled_from([{"type": "boolean"}, {"type": ["null", "integer"]}, {"type": "number", "minimum": -1.5}, {"type": "string", "pattern": "^[a-f]{1,3}$"}]),
)  # fmt: skip


def _objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    names = st.sampled_from(["a", "b", "ab", "é", 'q"'])

    def build(properties: dict[str, Any], required: set[str], additional: object) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": "object", "properties": properties}
        schema["required"] = sorted(required & properties.keys())
        return schema if additional is None else schema | {"additionalProperties": additional}

    more = st.none() | st.booleans() | inner
    return st.builds(build, st.dictionaries(names, inner, max_size=3), st.sets(names), more)


def _arrays(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.builds(
        lambda items, low, n: {
            "type": "array",
            "items": items,
            "minItems": low,
            "maxItems": low + n,
        },
        inner,
        st.integers(0, 2),
        st.integers(0, 2),
    )


SCHEMAS = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        _objects(inner),
        _arrays(inner),
        st.lists(inner, min_size=1, max_size=2).map(lambda options: {"anyOf": options}),
    ),
    max_leaves=5,
)


@given(SCHEMAS, st.integers(0, 1000))
@settings(max_examples=60, deadline=None)
def test_texts_of_any_schema_are_valid(schema: dict[str, Any], seed: int) -> None:
    text = random_text(to_grammar(schema), seed, n_bytes=40)
    if text is not None:
        jsonschema.Draft202012Validator(schema).validate(json.loads(text))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-50, 50) | st.text("abé", max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(SCHEMAS, VALUES)
@settings(max_examples=100, deadline=None)
def test_values_that_are_not_valid_are_not_allowed(schema: dict[str, Any], value: object) -> None:
    if allows(schema, value):
        jsonschema.Draft202012Validator(schema).validate(value)


@given(
    st.recursive(
        st.sampled_from(
            [
                *("type", "object", "string", "$ref", "#", "#/a", "items", "pattern", "^a("),
                1,
                -1,
                1.5,
                None,
                True,
            ]
        ),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "type",
                        "properties",
                        "items",
                        "anyOf",
                        "allOf",
                        "$ref",
                        "enum",
                        "minLength",
                        "maximum",
                        "required",
                        "additionalProperties",
                        "pattern",
                        "a",
                        "prefixItems",
                        "minItems",
                    ]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
@settings(max_examples=300, deadline=None)
def test_any_json_is_a_grammar_or_refused(schema: object) -> None:
    try:
        said = to_grammar(schema)
    except SchemaInvalid as error:
        said = str(error)
    assert said.startswith(("root ::=", "#"))
