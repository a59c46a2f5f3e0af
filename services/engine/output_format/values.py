"""Grammar rules for values that are not written as JSON: in tags, as in Python, in a model's own quotes."""

from typing import Any, cast

from schemas.output_format import ELEMENTS, PYTHON, RAW, Parameters, Shape
from services.engine.grammar.errors import SchemaInvalid
from services.engine.grammar.rules import Rules, either, literal
from services.engine.output_format.request import shape_of
from services.engine.output_format.texts import exact, members_of, schema_rule, shared, until

JsonObject = dict[str, Any]
CDATA = ("<![CDATA[", "]]>")
MAX_DEPTH = 8
_WORDS: dict[tuple[str, ...], str] = {
    ("boolean",): '("true" | "false" | "True" | "False")',
    ("null",): '("null" | "None")',
}
"""Templates write them as Python does, or as JSON."""
_PYTHON = {
    "py-value": "py-string | py-number | py-word | py-list | py-dict",
    "py-string": r'''"\"" ([^"\\\n] | "\\" [^\n])* "\"" | "'" ([^'\\\n] | "\\" [^\n])* "'"''',
    "py-number": '"-"? ("0" | [1-9] [0-9]{0,15}) ("." [0-9]{1,16})? ([eE] [-+]? [0-9]{1,3})?',
    "py-word": '"True" | "False" | "None" | "true" | "false" | "null"',
    "py-list": '"[" space (py-value ("," space py-value)* space)? "]"',
    "py-dict": '"{" space (py-string ":" space py-value ("," space py-string ":" space py-value)* space)? "}"',
}


def value_rule(
    rules: Rules, how: Parameters, schema: object, root: JsonObject, hint: str, key: str
) -> str:
    """An element for one value with what closes it, as `how` writes them."""
    if how.notation == ELEMENTS:
        return _element(rules, how.namespace, key, schema, root, hint)
    if how.notation == PYTHON:
        return f"{_python(rules, shape_of(schema, root))} {exact(how.tail)}"
    if how.notation == RAW:
        return _raw(rules, how, schema, root, hint)
    return f"{_json(rules, schema, root, hint)} {exact(how.tail)}"


def _raw(rules: Rules, how: Parameters, schema: object, root: JsonObject, hint: str) -> str:
    texts = _texts_of(schema)
    if texts:
        return f"{either([exact(text) for text in texts])} {exact(how.tail)}"
    shape = shape_of(schema, root)
    if shape.types in _WORDS:
        return f"{_WORDS[shape.types]} {exact(how.tail)}"
    if shape.types and "string" not in shape.types:
        return f"{_json(rules, schema, root, hint)} {exact(how.tail)}"
    text = f"{until(rules, how.tail)} {exact(how.tail)}"
    if not how.has_cdata:
        return text
    start, end = CDATA
    return f"({text} | {exact(start)} {until(rules, end)} {exact(end)} {exact(how.tail)})"


def _texts_of(schema: object) -> list[str]:
    """The texts that a schema lists, where it allows nothing else."""
    if not isinstance(schema, dict):
        return []
    own = cast(JsonObject, schema)
    values = own.get("enum", [own["const"]] if "const" in own else [])
    found = cast("list[object]", values if isinstance(values, list) else [])
    texts = [value for value in found if isinstance(value, str)]
    return texts if len(texts) == len(found) else []


def _json(rules: Rules, schema: object, root: JsonObject, hint: str) -> str:
    """JSON of a schema that stands inside another, whose definitions it may use."""
    own = cast(JsonObject, schema) if isinstance(schema, dict) else {}
    definitions = {name: root[name] for name in ("$defs", "definitions") if name in root}
    try:
        return schema_rule(rules, definitions | own, hint)
    except SchemaInvalid:
        return schema_rule(rules, {}, hint)


def _python(rules: Rules, shape: Shape) -> str:
    for name, body in _PYTHON.items():
        if name not in rules:
            rules.set(name, body)
    shared(rules, "space")
    return "py-string" if shape.types == ("string",) else "py-value"


def _element(
    rules: Rules,
    namespace: str,
    tag: str,
    schema: object,
    root: JsonObject,
    hint: str,
    depth: int = 0,
) -> str:
    """What stands between an opening tag and its closing one, and the latter."""
    close = literal(f"{namespace}</{tag}>")
    if choices := _choices(schema):
        inner = [_element(rules, namespace, tag, own, root, hint, depth + 1) for own in choices]
        return either(inner)
    shape = shape_of(schema, root)
    if not shape.types or "string" in shape.types or depth > MAX_DEPTH:
        return f"{until(rules, f'{namespace}</')} {close}"
    own = cast(JsonObject, schema) if isinstance(schema, dict) else {}
    if shape.types == ("array",):
        inner = _element(rules, namespace, "item", own.get("items", {}), root, hint, depth + 1)
        item = rules.add(f"{hint}-item", f"{literal(f'{namespace}<item>')} {inner}")
        return f"{item}* {close}"
    properties, wanted = members_of(schema)
    if shape.types == ("object",) and properties:
        opened = {name: literal(f"{namespace}<{name}>") for name in properties}
        members = {
            name: f"{opened[name]} {_element(rules, namespace, name, item, root, hint, depth + 1)}"
            for name, item in properties.items()
        }
        parts = [text if name in wanted else f"({text})?" for name, text in members.items()]
        return f"{' '.join(parts)} {close}"
    return f"{_json(rules, schema, root, hint)} {close}"


def _choices(schema: object) -> list[object]:
    """The alternatives that a schema names."""
    own = cast(JsonObject, schema) if isinstance(schema, dict) else {}
    found = own.get("anyOf") or own.get("oneOf")
    return cast("list[object]", found) if isinstance(found, list) else []


def quoted_object(
    rules: Rules, schema: object, root: JsonObject, quote: str, depth: int = 0
) -> str:
    """An object with bare keys and strings in a model's own quotes; keys as in the schema, or sorted."""
    is_described = isinstance(schema, dict) and isinstance(schema.get("properties"), dict)
    if depth > MAX_DEPTH or not is_described:
        return _any_quoted(rules, quote, "quoted-object")
    properties, wanted = members_of(cast(JsonObject, schema))
    members = {
        name: rules.add(
            "member", f"{exact(name + ':')} {quoted_value(rules, item, root, quote, depth + 1)}"
        )
        for name, item in properties.items()
    }
    in_order = dict(sorted(members.items()))
    orders = [members] if list(in_order) == list(members) else [members, in_order]
    inside = either([listed(rules, order, wanted, '","') for order in orders])
    return f'"{{" {inside} "}}"'


def listed(rules: Rules, members: dict[str, str], wanted: frozenset[str], separator: str) -> str:
    """Members in their order with a separator between them; those that are not wanted may be missing.

    members: name → rule.
    """
    options: list[str] = []
    rest = '""'
    for name, member in reversed(members.items()):
        options.insert(0, f"{member} {rest}")
        if name in wanted:
            options = options[:1]
        more = f"({separator} {member})" + ("" if name in wanted else "?")
        rest = rules.add("rest", f"{more} {rest}")
    is_optional = not wanted.intersection(members)
    return f"({' | '.join(options)})?" if is_optional and options else either(options or ['""'])


def quoted_value(rules: Rules, schema: object, root: JsonObject, quote: str, depth: int) -> str:
    shape = shape_of(schema, root)
    text = f"{literal(quote)} {until(rules, quote)} {literal(quote)}"
    match shape.types:
        case ("string",):
            texts = _texts_of(schema)
            quoted = [literal(quote + text + quote) for text in texts]
            return either(quoted) if quoted else text
        case ("object",):
            return quoted_object(rules, schema, root, quote, depth)
        case ("integer",) | ("number",) | ("boolean",) | ("null",):
            return schema_rule(rules, {"type": shape.types[0]}, "value")
        case ("array",):
            own = cast(JsonObject, schema) if isinstance(schema, dict) else {}
            item = quoted_value(rules, own.get("items", {}), root, quote, depth + 1)
            return f'"[" ({item} ("," {item})*)? "]"'
        case _:
            return _any_quoted(rules, quote, "quoted-value")


def _any_quoted(rules: Rules, quote: str, name: str) -> str:
    if "quoted-value" not in rules:
        rules.set("quoted-value", "quoted-object | quoted-array | quoted-text | quoted-plain")
        rules.set("quoted-object", '"{" (quoted-member ("," quoted-member)*)? "}"')
        rules.set("quoted-member", '[^{}:,"<>]{1,128} ":" quoted-value')
        rules.set("quoted-array", '"[" (quoted-value ("," quoted-value)*)? "]"')
        rules.set("quoted-text", f"{literal(quote)} {until(rules, quote)} {literal(quote)}")
        plain = schema_rule(rules, {"type": ["number", "boolean", "null"]}, "quoted-plain-value")
        rules.set("quoted-plain", plain)
    return name
