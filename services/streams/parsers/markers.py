"""Markers in a text that may end inside one.

A marker matches with any whitespace where it has some: between its words, and in front.
"""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

from services.streams.parsers.reader import Reader, Reading

PARTIAL = -1
NO = -2


@lru_cache(maxsize=1024)
def words_of(marker: str) -> tuple[str, ...]:
    """The parts of a marker between its whitespace."""
    return tuple(marker.split())


def match_at(text: str, pos: int, marker: str) -> int:
    """Where a match that begins at `pos` (whitespace before it skipped) ends, or PARTIAL, or NO."""
    for word in words_of(marker):
        while pos < len(text) and text[pos].isspace():
            pos += 1
        if not text.startswith(word, pos):
            return PARTIAL if word.startswith(text[pos:]) else NO
        pos += len(word)
    return pos


def literal(reader: Reader, marker: str) -> Reading[bool]:
    """Read `marker` if the text goes on with it."""
    while (end := match_at(reader.text, reader.pos, marker)) == PARTIAL:
        if not (yield from reader.more()):
            return False
    if end == NO:
        return False
    reader.pos = end
    return True


def first_of(reader: Reader, markers: Sequence[str]) -> Reading[str | None]:
    """Read whichever of `markers` the text goes on with; the first in their order."""
    for marker in markers:
        if (yield from literal(reader, marker)):
            return marker
    return None


class Found(NamedTuple):
    """A marker in a text. end: PARTIAL where the text ends inside it."""

    start: int
    end: int
    marker: str


@lru_cache(maxsize=256)
def _signs(markers: tuple[str, ...]) -> re.Pattern[str]:
    """What every marker begins with: a text without such a character holds none."""
    chars = {words_of(marker)[0][0] for marker in markers if words_of(marker)}
    return re.compile("|".join(map(re.escape, sorted(chars))) or r"(?!)")


def find(text: str, pos: int, markers: tuple[str, ...], *, is_closed: bool) -> Found | None:
    """The earliest marker from `pos` on; of several at one place the one that is whole first."""
    sign = _signs(markers).search(text, pos)
    if sign is None:
        return None
    pos = sign.start()
    all_found = (_find_one(text, pos, marker, is_closed) for marker in markers)
    return min((found for found in all_found if found is not None), key=_order, default=None)


def _order(found: Found) -> tuple[int, bool, int]:
    return found.start, found.end == PARTIAL, found.end


def _find_one(text: str, pos: int, marker: str, is_closed: bool) -> Found | None:
    words = words_of(marker)
    if not words:
        return None
    at = text.find(words[0], pos)
    while at >= 0:
        end = match_at(text, at, marker)
        if end >= 0 or (end == PARTIAL and not is_closed):
            return Found(at, end, marker)
        at = text.find(words[0], at + 1)
    if is_closed:
        return None
    n = _overlap(text, pos, words[0])
    return Found(len(text) - n, PARTIAL, marker) if n else None


def _overlap(text: str, pos: int, word: str) -> int:
    """How many characters at the end of the text are a true beginning of `word`."""
    for n in range(min(len(word) - 1, len(text) - pos), 0, -1):
        if text.endswith(word[:n]):
            return n
    return 0


def text_until(
    reader: Reader, markers: tuple[str, ...], take: Callable[[str], None]
) -> Reading[Found | None]:
    """Give the text before the next marker to `take`, as soon as it is certain.

    Stops in front of the marker; None: the text ended without one.
    """
    while True:
        found = find(reader.text, reader.pos, markers, is_closed=reader.is_closed)
        stop = len(reader.text) if found is None else found.start
        if stop > reader.pos:
            chunk = reader.text[reader.pos : stop]
            reader.pos = stop
            take(chunk)
        if found is not None and found.end != PARTIAL:
            return found
        if not (yield from reader.more()) and found is None:
            return None
