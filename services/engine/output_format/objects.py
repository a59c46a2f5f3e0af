"""JSON objects in a text, and where a call's name, arguments and id stand in one. Pure."""

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, cast

from services.engine.output_format.samples import SampleCall

_DECODER = json.JSONDecoder()


class Found(NamedTuple):
    """An object and its place in the text."""

    start: int
    end: int
    value: dict[str, Any]


class Keys(NamedTuple):
    """Paths to the parts of a call, outermost key first. No name: it is the key of the arguments."""

    name: tuple[str, ...]
    arguments: tuple[str, ...]
    id: tuple[str, ...] = ()
    has_late_id: bool = False
    id_is_number: bool = False


def find_object(
    text: str, is_wanted: Callable[[dict[str, Any]], bool], *, before: int | None = None
) -> Found | None:
    """The first object that is wanted. before: it begins in front of that place."""
    at = text.find("{")
    while at >= 0 and (before is None or at < before):
        try:
            value, end = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            value, end = None, at
        if isinstance(value, dict) and is_wanted(cast("dict[str, Any]", value)):
            return Found(at, end, cast("dict[str, Any]", value))
        at = text.find("{", at + 1)
    return None


def keys_of(value: dict[str, Any], call: SampleCall) -> Keys | None:
    """Where the parts of a call stand in an object. None: it is not that call."""
    if value.get(call.name) == call.arguments:
        return Keys((), ())
    paths = list(_paths(value, ()))
    name = next((path for path, found in paths if found == call.name), None)
    arguments = next((path for path, found in paths if _is_arguments(found, call)), None)
    if name is None or arguments is None:
        return None
    order = [path for path, _ in paths]
    own = next((path for path, found in paths if found == call.id), None)
    number = next((path for path, found in paths if "id" in path[-1] and _is_number(found)), None)
    where = own or number or ()
    return Keys(
        name=name,
        arguments=arguments,
        id=where,
        has_late_id=bool(where) and order.index(where) > order.index(arguments),
        id_is_number=own is None and number is not None,
    )


def _is_arguments(value: object, call: SampleCall) -> bool:
    if not isinstance(value, str):
        return value == call.arguments
    try:
        return json.loads(value) == call.arguments
    except (ValueError, RecursionError):
        return False


def _is_number(value: object) -> bool:
    return (isinstance(value, str) and value.isdigit()) or type(value) is int


def _paths(
    value: dict[str, Any], path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], object]]:
    for key, item in value.items():
        yield (*path, key), item
        if isinstance(item, dict):
            yield from _paths(cast("dict[str, Any]", item), (*path, key))
