"""How a template writes the arguments of a call that is no JSON. Pure."""

import json
import re
from itertools import pairwise
from typing import NamedTuple

from schemas.output_format import JSON, KEY, PYTHON, QUOTED, RAW, TEXT, TYPE, Parameters, Part
from services.engine.output_format.samples import TYPED, SampleCall
from services.engine.output_format.segments import common_prefix, common_suffix

_NAMES = ("string", "integer", "number", "boolean", "null", "array", "object")
_QUOTES = {'"': JSON, "'": PYTHON}


class Written(NamedTuple):
    """Parameters in a text: how, and where they begin and end. quote: around strings, if any."""

    how: Parameters
    start: int
    end: int
    quote: str = ""


def parameters_in(text: str, typed: str | None, call: SampleCall) -> Written | None:
    """Find the parameters of a call. typed: the text of a call with a value of every type."""
    places = _places(text, list(call.arguments.items()))
    if places is None:
        return None
    (key1, value1), (key2, value2) = places
    between, behind = text[value1[1] : key2[0]], text[value2[1] :]
    opening = common_suffix(text[: key1[0]], between)
    tail = common_prefix(between.removesuffix(opening), behind)
    separator = between.removesuffix(opening).removeprefix(tail)
    head = text[key1[1] : value1[0]]
    middle, types, quote = _typed_head(typed, head, tail)
    if quote:
        tail = tail.removeprefix(quote)
    parts = (Part(kind=TEXT, text=opening), Part(kind=KEY), *middle)
    how = Parameters(
        head=tuple(part for part in parts if part.kind != TEXT or part.text),
        tail=tail,
        separator=separator,
        notation=_QUOTES.get(quote, QUOTED if quote else RAW),
        types=types,
    )
    return Written(how, key1[0] - len(opening), value2[1] + len(quote) + len(tail), quote)


Place = tuple[int, int]


def _places(text: str, items: list[tuple[str, str]]) -> list[tuple[Place, Place]] | None:
    """Where each key and its value stand, in order."""
    found: list[tuple[Place, Place]] = []
    pos = 0
    for key, value in items:
        at = text.find(key, pos)
        value_at = text.find(value, at)
        if min(at, value_at) < 0:
            return None
        pos = value_at + len(value)
        found.append(((at, at + len(key)), (value_at, pos)))
    return found


def _typed_head(
    typed: str | None, head: str, tail: str
) -> tuple[tuple[Part, ...], dict[str, str], str]:
    """What stands between key and value: parts, words per type, and the quote around strings."""
    heads = _heads(typed) if typed else {}
    plain = heads.get("integer", head)
    if head != plain and head.startswith(plain) and tail.startswith(head[len(plain) :]):
        return _text(plain), {}, head[len(plain) :]
    if head == plain or not heads:
        return _text(head), {}, ""
    before, behind = _around(list(heads.values()))
    types = {name: text[len(before) : len(text) - len(behind)] for name, text in heads.items()}
    return (*_text(before), Part(kind=TYPE), *_text(behind)), types, ""


def _text(text: str) -> tuple[Part, ...]:
    return (Part(kind=TEXT, text=text),) if text else ()


def _around(heads: list[str]) -> tuple[str, str]:
    """What all begin with, up to a quote or space, and what all end with."""
    before, behind = heads[0], heads[0]
    for head in heads[1:]:
        before, behind = common_prefix(before, head), common_suffix(behind, head)
    return before, behind


def _heads(typed: str) -> dict[str, str]:
    """JSON type → what stands between the key and a value of that type."""
    keys = [(key, match) for key in TYPED.arguments if (match := re.search(rf"\b{key}\b", typed))]
    found: dict[str, str] = {}
    for (key, match), (_, following) in pairwise(keys):
        value = TYPED.arguments[key]
        text = typed[match.end() : following.start()]
        starts = [at for shown in _shown(value) if (at := text.find(shown)) >= 0]
        if starts and key[3:] in _NAMES:
            found[key[3:]] = text[: min(starts)]
    return found


def _shown(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    shown = json.dumps(value)
    return (shown, str(value), shown[:1]) if shown[0] in "[{" else (shown, str(value))
