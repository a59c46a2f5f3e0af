"""Texts that a template writes, compared tag by tag: a comparison never ends inside a tag."""

import re
from collections.abc import Iterable
from itertools import takewhile

_SEGMENT = re.compile(r"<[^<>\n]{1,80}>|\[/?[A-Z][A-Z_ ]*\]|\s+|\w+|.", re.DOTALL)
_TAG = re.compile(r"<[^<>\n]{1,80}>|\[/?[A-Z][A-Z_ ]*\]")


def split(text: str) -> list[str]:
    """Tags, whitespace, words and single characters."""
    return _SEGMENT.findall(text)


def is_tag(segment: str) -> bool:
    return _TAG.fullmatch(segment) is not None


def common_prefix(first: str, second: str) -> str:
    """What both begin with."""
    return "".join(_equal(split(first), split(second)))


def common_suffix(first: str, second: str) -> str:
    """What both end with."""
    found = list(_equal(reversed(split(first)), reversed(split(second))))
    return "".join(reversed(found))


def _equal(first: Iterable[str], second: Iterable[str]) -> Iterable[str]:
    pairs = zip(first, second, strict=False)
    return (one for one, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def after(text: str, prefix: str) -> str:
    """`text` without `prefix`; whitespace where they meet may differ."""
    return text.removeprefix(prefix)


def without_any(text: str, markers: Iterable[str]) -> str:
    """`text` without the markers that it begins with, in whatever order."""
    known = [marker.strip() for marker in markers if marker.strip()]
    while found := next((m for m in known if text.lstrip().startswith(m)), None):
        text = text.lstrip()[len(found) :]
    return text


def first_tag(text: str) -> str:
    """The first tag of a text with the whitespace around it, if nothing else stands before it."""
    found = re.match(rf"\s*(?:{_TAG.pattern})\s*", text)
    return found.group() if found else ""
