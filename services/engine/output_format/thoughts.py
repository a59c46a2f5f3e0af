"""How a template marks thoughts and content. Pure."""

import re
from itertools import takewhile
from typing import NamedTuple

from services.engine.output_format.samples import (
    FIRST,
    SAID,
    THOUGHT,
    THOUGHT_FIELDS,
    Samples,
)
from services.engine.output_format.segments import (
    common_prefix,
    common_suffix,
    first_tag,
    split,
    without_any,
)

_THINKING_TAG = (
    r"(?:<[^<>\s]*(?:think|thought|reason)[^<>\s]*>|\[[A-Z_ ]*(?:THINK|REASON)[A-Z_ ]*\])"
)
_OPENED = re.compile(rf"{_THINKING_TAG}\s*$", re.IGNORECASE)
_TAGS_BEFORE = re.compile(rf"(?:{_THINKING_TAG}\s*)$", re.IGNORECASE)
COMMON = ("<think>", "</think>")


class Header(NamedTuple):
    """What opens the assistant's turn. plain: as far as all turns begin alike. said: what a turn of
    content has in front of it. ending: what it has behind it. opened: with thinking on."""

    plain: str
    said: str
    ending: str
    opened: str
    closed: str


class Thoughts(NamedTuple):
    """start, end: around thoughts. field: where the template reads them, empty where it never does."""

    start: str = ""
    end: str = ""
    field: str = ""


def header_of(samples: Samples) -> Header | None:
    """How turns begin and end. None: the template renders no answer."""
    said, opened = samples.said(), samples.opening()
    if said is None or SAID not in said:
        return None
    before, _, ending = said.partition(SAID)
    opened = before if opened is None else opened
    closed = samples.opening(thinks=False)
    closed = opened if closed is None else closed
    earlier = (samples.said_before() or said).partition(SAID)[0]
    plain = before
    for other in (opened, closed, earlier):
        plain = common_prefix(plain, other) or plain
    return Header(plain, before, ending, opened, closed)


def thoughts_of(samples: Samples, header: Header, source: str) -> Thoughts:
    """Where thoughts stand: rendered ones are looked at first, then how a turn is opened."""
    for field in THOUGHT_FIELDS:
        text = samples.thought(field)
        if text and SAID in text.partition(THOUGHT)[2] and not _is_quoted(text):
            return Thoughts(_start(text, header), _between(text, header)[0], field)
    for field in THOUGHT_FIELDS:
        text = samples.called(FIRST, field=field)
        if text and FIRST.name in text.partition(THOUGHT)[2] and not _is_quoted(text):
            end = first_tag(text.partition(THOUGHT)[2])
            return Thoughts(_start(text, header), end, field)
    return _from_opening(header, source)


def _start(text: str, header: Header) -> str:
    before = text.partition(THOUGHT)[0]
    start = before.removeprefix(header.plain)
    found = _TAGS_BEFORE.search(before)
    if found:
        return found.group()
    return start if start.strip() else ""


def _between(text: str, header: Header) -> tuple[str, str, str]:
    """What stands between thoughts and content: the end of thoughts, what opens a further part of the
    turn, what marks content."""
    between = text.partition(THOUGHT)[2].partition(SAID)[0]
    marker = common_suffix(between, content_marker(header))
    if not marker.strip() or marker.strip() != content_marker(header).strip():
        return between, "", ""
    rest = between.removesuffix(marker)
    if not rest.strip():
        return between, "", ""
    turn = common_suffix(rest, header.plain)
    end = rest.removesuffix(turn)
    if not end.strip():
        end = first_tag(turn)
        turn = turn.removeprefix(end)
    return end, turn.strip(), marker


def content_of(samples: Samples, header: Header, thoughts: Thoughts) -> tuple[str, str]:
    """What marks content, and what opens a further part of the turn."""
    text = samples.thought(thoughts.field) if thoughts.field else None
    if text and THOUGHT in text and SAID in text:
        _, turn, marker = _between(text, header)
        return marker, turn
    marker = without_any(content_marker(header), (thoughts.start, thoughts.end))
    return marker if marker.strip() else "", ""


def content_marker(header: Header) -> str:
    """What stands in front of content, thoughts left out: a tag, or a word behind special signs."""
    marker = header.said.removeprefix(common_prefix(header.plain, header.said))
    if not marker[:1].isalnum():
        return marker
    signs = list(takewhile(_is_sign, reversed(split(header.plain))))
    return "".join(reversed(signs)) + marker if signs else ""


def _is_sign(segment: str) -> bool:
    return len(segment) == 1 and not segment.isalnum() and not segment.isspace()


def _is_quoted(text: str) -> bool:
    """The template shows thoughts by writing their data down, which no model does."""
    before, _, behind = text.partition(THOUGHT)
    return before.endswith(("'", '"')) and behind.startswith(("'", '"'))


def _from_opening(header: Header, source: str) -> Thoughts:
    """The template shows no thoughts: does it open them, or close them at once when told not to think?"""
    extra = header.closed.removeprefix(common_prefix(header.plain, header.closed))
    pair = re.fullmatch(rf"\s*({_THINKING_TAG}\s*)(\S.*?)\s*", extra, re.IGNORECASE | re.DOTALL)
    if pair:
        return Thoughts(pair[1], pair[2])
    opened = _OPENED.search(header.opened)
    if opened and (end := _closing(opened.group().strip())) in source:
        return Thoughts(opened.group(), end)
    if all(tag in source for tag in COMMON):
        return Thoughts(*COMMON)
    return Thoughts()


def _closing(tag: str) -> str:
    return f"{tag[0]}/{tag[1:]}"
