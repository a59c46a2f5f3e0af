"""The description of one answer: what the template says, and what the request offers and wants. Pure."""

from collections.abc import Iterable
from typing import Any, cast

from msgspec.structs import replace

from schemas.output_format import OBJECT, TEXT, Calls, OutputFormat, Part, Shape, Tool
from services.engine.messages import JsonObject

GENERIC = Calls(
    patterns=(
        (
            Part(kind=TEXT, text="<tool_call>\n"),
            Part(kind=OBJECT),
            Part(kind=TEXT, text="\n</tool_call>"),
        ),
    ),
    separator="\n",
    name_keys=("name",),
    arguments_keys=("arguments",),
)
"""How calls are written where the template knows none; `generic` tells the model so."""
MAX_DEPTH = 16
PLAIN = OutputFormat()
_THOUGHTS = {"none": "content", "deepseek-legacy": "both"}


def for_request(
    known: OutputFormat,
    *,
    tools: list[JsonObject],
    has_calls: bool,
    prefix: str,
    is_continued: bool,
    reasoning_format: str,
    is_stream: bool,
) -> OutputFormat:
    """What this answer is made of. has_calls: tools are offered, and the model may call them.

    prefix: the beginning of the answer that stands in the prompt. `deepseek-legacy` leaves thoughts
    in streamed content, too.
    """
    calls = (known.calls or GENERIC) if has_calls else None
    thoughts = _THOUGHTS.get(reasoning_format, "field")
    if thoughts == "both" and not is_stream:
        thoughts = "field"
    return replace(
        known,
        calls=calls,
        tools=tuple(_tool(tool, calls) for tool in tools) if calls is not None else (),
        prefix=prefix,
        is_continued=is_continued,
        thoughts=thoughts,
    )


def without_names(known: OutputFormat, names: tuple[str, ...]) -> OutputFormat:
    """The description without texts that never come, where they would stand behind calls."""
    calls = known.calls
    if calls is None or not any(name in text for name in names for text in _closers(calls)):
        return known
    patterns = tuple(
        (*parts[:-1], replace(parts[-1], text=_without(parts[-1].text, names)))
        for parts in calls.patterns
    )
    return replace(known, calls=replace(calls, end=_without(calls.end, names), patterns=patterns))


def _closers(calls: Calls) -> list[str]:
    return [calls.end, *(parts[-1].text for parts in calls.patterns)]


def _without(text: str, names: tuple[str, ...]) -> str:
    for name in names:
        text = text.removesuffix(name) if text.rstrip().endswith(name) else text
    return text


def is_plain(description: OutputFormat) -> bool:
    """Whether all text is content, so that nothing needs to be parsed."""
    marked = description.thought_end or description.content_starts or description.prefix
    return description.calls is None and not marked


def prefix_in(known: OutputFormat, generation_prompt: str) -> str:
    """The beginning of the answer in what opens the turn: from the first marker in it, or from a
    beginning of one at its end."""
    calls = known.calls
    openers = [known.thought_start, known.thought_end, *known.content_starts]
    if calls is not None:
        openers += [calls.start, *(parts[0].text for parts in calls.patterns)]
    words = [word.strip() for word in openers if word.strip()]
    places = [at for word in words if (at := _place(generation_prompt, word)) >= 0]
    return generation_prompt[min(places) :] if places else ""


def _place(text: str, word: str) -> int:
    at = text.find(word)
    if word[0].isalnum():
        return at
    for n in range(len(word) - 1, 0, -1):
        if at < 0 and text.endswith(word[:n]):
            return len(text) - n
    return at


def _tool(tool: JsonObject, calls: Calls | None) -> Tool:
    function = cast("JsonObject", tool["function"])
    schema = function.get("parameters")
    if calls is None or calls.parameters is None or not isinstance(schema, dict):
        return Tool(name=function["name"])
    shape = shape_of(cast("JsonObject", schema), cast("JsonObject", schema))
    return Tool(name=function["name"], parameters=shape.properties)


def shape_of(schema: object, root: JsonObject, depth: int = 0) -> Shape:
    """What a value may be by its JSON schema, as far as that decides how its text is read."""
    if not isinstance(schema, dict) or depth > MAX_DEPTH:
        return Shape()
    own = cast("JsonObject", schema)
    if isinstance(reference := own.get("$ref"), str):
        return shape_of(_target(reference, root), root, depth + 1)
    for name in ("anyOf", "oneOf"):
        if isinstance(choices := own.get(name), list):
            return _union(
                [shape_of(item, root, depth + 1) for item in cast("list[object]", choices)]
            )
    properties = own.get("properties")
    items = own.get("items")
    return Shape(
        types=_types(own),
        properties={
            name: shape_of(item, root, depth + 1)
            for name, item in cast("JsonObject", properties).items()
        }
        if isinstance(properties, dict)
        else {},
        items=None if items is None else shape_of(items, root, depth + 1),
    )


def _union(shapes: list[Shape]) -> Shape:
    if any(not shape.types for shape in shapes):
        return Shape()
    types = dict.fromkeys(kind for shape in shapes for kind in shape.types)
    inner = next((shape for shape in shapes if shape.properties or shape.items), Shape())
    return replace(inner, types=tuple(types))


def _types(schema: JsonObject) -> tuple[str, ...]:
    kind = schema.get("type")
    if isinstance(kind, str):
        return (kind,)
    if isinstance(kind, list):
        return tuple(str(item) for item in cast("list[object]", kind))
    if isinstance(values := schema.get("enum"), list):
        return tuple(dict.fromkeys(map(_type_of, cast("list[object]", values))))
    if "const" in schema:
        return (_type_of(schema["const"]),)
    return ("object",) if "properties" in schema else ()


def _type_of(value: object) -> str:
    names: Iterable[tuple[type[Any], str]] = (
        (bool, "boolean"),
        (int, "integer"),
        (float, "number"),
        (str, "string"),
        (list, "array"),
        (dict, "object"),
    )
    return next((name for kind, name in names if isinstance(value, kind)), "null")


def _target(reference: str, root: JsonObject) -> object:
    """The part of the schema that a local reference names."""
    found: Any = root
    for key in filter(None, reference.removeprefix("#").split("/")):
        found = found.get(key) if isinstance(found, dict) else None
    return found
