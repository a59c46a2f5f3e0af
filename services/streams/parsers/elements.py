"""Values written as nested tags: members of objects under their own names, items of arrays as `item`."""

from schemas.output_format import Shape
from services.streams.parsers.errors import Mismatch
from services.streams.parsers.markers import literal, text_until
from services.streams.parsers.reader import Reader, Reading
from services.streams.parsers.values import MAX_DEPTH, Put, escaped, from_text
from services.streams.parsers.words import word_before

ITEM = "item"
UNKNOWN = Shape()


def element_value(
    reader: Reader, namespace: str, tag: str, shape: Shape, put: Put, depth: int = 0
) -> Reading[None]:
    """Read what stands between an opening tag and its closing one, and the latter. Raises Mismatch."""
    if depth > MAX_DEPTH:
        raise Mismatch
    close = f"{namespace}</{tag}>"
    if shape.types == ("string",) or "string" in shape.types:
        put('"')
        yield from _until(reader, close, lambda text: put(escaped(text)))
        put('"')
    elif (yield from _is_nested(reader, namespace)) and shape.types != ("object", "array"):
        yield from _nested(reader, namespace, tag, shape, put, depth)
    elif shape.types == ("array",) and (yield from literal(reader, close)):
        put("[]")
    elif shape.types == ("object",) and (yield from literal(reader, close)):
        put("{}")
    else:
        parts: list[str] = []
        yield from _until(reader, close, parts.append)
        put(from_text("".join(parts), shape.types))


def _until(reader: Reader, close: str, put: Put) -> Reading[None]:
    found = yield from text_until(reader, (close,), put)
    if found is None:
        raise Mismatch
    reader.pos = found.end


def _is_nested(reader: Reader, namespace: str) -> Reading[bool]:
    """Whether an element begins here, and not the end of this one."""
    start = reader.mark()
    is_open = yield from literal(reader, f"{namespace}<")
    is_open = is_open and (yield from reader.peek()) != "/"
    reader.reset(start)
    return is_open


def _nested(
    reader: Reader, namespace: str, tag: str, shape: Shape, put: Put, depth: int
) -> Reading[None]:
    name = yield from _opened(reader, namespace)
    is_array = _is_array(shape, name)
    put("[" if is_array else "{")
    while True:
        put("" if is_array else f'"{escaped(name)}": ')
        inner = shape.items if is_array else shape.properties.get(name)
        yield from element_value(reader, namespace, name, inner or UNKNOWN, put, depth + 1)
        if not (yield from _is_nested(reader, namespace)):
            break
        name = yield from _opened(reader, namespace)
        put(", ")
    if not (yield from literal(reader, f"{namespace}</{tag}>")):
        raise Mismatch
    put("]" if is_array else "}")


def _opened(reader: Reader, namespace: str) -> Reading[str]:
    """Read an opening tag: its name."""
    yield from literal(reader, f"{namespace}<")
    name = yield from word_before(reader, (">",))
    yield from literal(reader, ">")
    return name


def _is_array(shape: Shape, first: str) -> bool:
    if first != ITEM or first in shape.properties:
        return shape.types == ("array",)
    return not shape.types or "array" in shape.types
