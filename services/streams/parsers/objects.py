"""Calls that are JSON objects: name, arguments and id under keys that the description names."""

import json
from collections.abc import Callable

from schemas.output_format import QUOTED, Calls
from services.streams.parsers.call import Call
from services.streams.parsers.errors import Mismatch
from services.streams.parsers.reader import Reader, Reading
from services.streams.parsers.values import JSON, Notation, decoded, key, members, string, value

ARGUMENT_KEYS = ("arguments", "parameters")
"""Models confuse them."""
OTHER_KEYS = ("type", "function", "id", "name")
MAX_NAME = 256
_DROPPED = frozenset({"type", "id"})


def notation_of(calls: Calls) -> Notation:
    if calls.notation == QUOTED:
        return Notation(quote=calls.quote, has_bare_keys=True)
    return JSON


def call_object(reader: Reader, calls: Calls, call: Call) -> Reading[None]:
    """Read one call, whole. Raises Mismatch for what is none, or is broken."""
    yield from reader.skip_space()
    if not calls.name_keys:
        yield from _named_by_key(reader, calls, call)
    else:
        yield from _members(reader, calls, call, ())
    call.announce()
    if not call.has_arguments():
        call.put("{}")


def _named_by_key(reader: Reader, calls: Calls, call: Call) -> Reading[None]:
    yield from _expect(reader, "{")
    yield from reader.skip_space()
    call.name = yield from key(reader, JSON)
    yield from _expect(reader, ":")
    yield from arguments(reader, calls, call)
    yield from _expect(reader, "}")


def _members(reader: Reader, calls: Calls, call: Call, path: tuple[str, ...]) -> Reading[None]:
    yield from _expect(reader, "{")
    while True:
        yield from reader.skip_space()
        if (yield from reader.peek()) == "}" and path:
            break
        name = yield from key(reader, JSON)
        yield from _expect(reader, ":")
        yield from _member(reader, calls, call, (*path, name))
        yield from reader.skip_space()
        if (yield from reader.peek()) != ",":
            break
        reader.pos += 1
    yield from _expect(reader, "}")


def _member(reader: Reader, calls: Calls, call: Call, path: tuple[str, ...]) -> Reading[None]:
    yield from reader.skip_space()
    is_object = (yield from reader.peek()) == "{"
    if path == calls.arguments_keys or path[-1] in ARGUMENT_KEYS:
        yield from arguments(reader, calls, call)
    elif path == calls.name_keys or (path[-1] in ("name", "function") and not is_object):
        call.name = yield from _text(reader)
        _ = call.tool
    elif path == calls.id_keys:
        call.id = yield from _text(reader)
    elif is_object and (path[-1] == "function" or calls.name_keys[: len(path)] == path):
        yield from _members(reader, calls, call, path)
    elif call.is_announced or path[-1] in _DROPPED:
        yield from value(reader, JSON, _drop)
    else:
        raise Mismatch


def arguments(reader: Reader, calls: Calls, call: Call) -> Reading[None]:
    """Read the arguments: an object, or a text that holds one."""
    yield from reader.skip_space()
    char = yield from reader.peek()
    if char == "{" and call.name and not calls.has_late_id:
        call.announce()
    if char == "{":
        yield from members(reader, notation_of(calls), call.put)
    elif char == '"':
        call.put(_object_in((yield from _text(reader))))
    else:
        yield from _nothing(reader)
        call.put("{}")


def _object_in(text: str) -> str:
    """The object that a text holds. Raises Mismatch."""
    try:
        found = json.loads(text or "{}")
    except (ValueError, RecursionError) as error:
        raise Mismatch from error
    if not isinstance(found, dict):
        raise Mismatch
    return text or "{}"


def _nothing(reader: Reader) -> Reading[None]:
    parts: list[str] = []
    yield from value(reader, JSON, parts.append)
    if "".join(parts) != "null":
        raise Mismatch


def _text(reader: Reader) -> Reading[str]:
    """Read a string, or a number as text."""
    parts: list[str] = []
    put: Callable[[str], None] = parts.append
    if not (yield from string(reader, JSON, put)):
        yield from value(reader, JSON, put)
        return "".join(parts)
    return decoded("".join(parts))


def _expect(reader: Reader, char: str) -> Reading[None]:
    yield from reader.skip_space()
    if (yield from reader.peek()) != char:
        raise Mismatch
    reader.pos += 1


def _drop(text: str) -> None:
    del text
