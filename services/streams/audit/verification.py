"""What is wrong with a link of the chain, with its row, with its events. Pure; see archive.digests.

broken_chain       a link does not continue the one before it: it was changed, or others are gone
missing_link       its place in the day is not the next one: links between were removed
reordered          links stand in each other's places
missing_row        a link's generation is not in the archive
changed_row        its facts are not those that the link covers
missing_events     its log should be there and is not
changed_events     its log is not the one that its facts cover
unexpected_events  a log is there that was erased, or never to be kept
unlinked_row       a generation that no link covers
missing_head       the chain does not reach the head that was expected: its end was removed
changed_head       at the place of that head stands something else
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from services.streams.archive.digests import (
    ERASURE,
    GENERATION,
    RETENTION,
    Link,
    anchor_name,
    chain_digest,
    is_next,
    row_digest,
    tombstone_digest,
)

Columns = Mapping[str, object]


class Finding(NamedTuple):
    """One thing that is wrong. day, position: of the link, "" and −1 where there is none."""

    kind: str
    day: str
    position: int
    generation_id: str
    detail: str


class Subject(NamedTuple):
    """A link with what the archive has of its generation.

    columns: its row, None where there is none. events_digest: of the log that is there, None for
    none, "" for one that cannot be read. is_linked, is_erased: whether a link of that kind names it.
    """

    link: Link
    columns: Columns | None
    events_digest: str | None
    is_linked: bool
    is_erased: bool


class Loaded(NamedTuple):
    """A link's subject, its log not looked at yet. n_bytes: of the log as it is stored, −1 for none."""

    subject: Subject
    n_bytes: int


class Packed(NamedTuple):
    """A log as it is stored."""

    codec: str
    data: bytes


class Walk:
    """Follows the chain link by link. last: the link before, None at the beginning of all.
    has_breaks: whether a link did not continue the one before it."""

    def __init__(self, last: Link | None) -> None:
        self.last = last
        self._first: Link | None = None
        self._is_begun = last is not None
        self._anchors: set[tuple[str, str]] = set()
        self.has_breaks = False

    @property
    def begins_late(self) -> bool:
        """Whether links before the first one that was seen were removed, rightly or not."""
        return self._first is not None

    def step(self, link: Link, around: Iterable[Link]) -> list[Finding]:
        """What is wrong with that link's place. around: links near it, to see who changed places."""
        last, self.last = self.last, link
        if link.kind == RETENTION:
            self._anchors.add((link.generation_id, link.digest))
        if not self._is_begun:
            self._is_begun = True
            if not is_next(None, link):
                self._first = link
            return []
        if is_next(last, link):
            return []
        self.has_breaks = True
        return [_break(last, link, around)]

    def begin_at(self, link: Link) -> None:
        """What was before that link has just been given up: the chain begins with it now."""
        self._first = self.last = link

    def finish(self) -> list[Finding]:
        """What can be said only at the end: whether a beginning that is not there was given up."""
        first = self._first
        if first is None or (anchor_name(first), first.chain_digest) in self._anchors:
            return []
        detail = "the chain begins here, and no later link says that what was before was given up"
        return [_finding("missing_link", first, detail)]


def _break(last: Link | None, link: Link, around: Iterable[Link]) -> Finding:
    assert last is not None
    if _has_moved(last, link, around):
        return _finding("reordered", link, "it stands in another link's place")
    expected = last.position + 1 if link.day == last.day else 0
    if link.position != expected or link.day < last.day:
        detail = f"the link before it is {anchor_name(last)}: links between were removed"
        return _finding("missing_link", link, detail)
    detail = f"it does not continue {anchor_name(last)}: changed, or links between are missing"
    return _finding("broken_chain", link, detail)


def _has_moved(last: Link, link: Link, around: Iterable[Link]) -> bool:
    """Whether it would continue another link, or another link would fit here."""
    for other in around:
        if other == link:
            continue
        if _continues(other, link) or chain_digest(*_content(last, other)) == link.chain_digest:
            return True
        if _continues(last, other):
            return True
    return False


def _continues(before: Link, link: Link) -> bool:
    return chain_digest(*_content(before, link)) == link.chain_digest


def _content(before: Link, link: Link) -> tuple[str, str, str, str]:
    return before.chain_digest, link.kind, link.generation_id, link.digest


def check(subject: Subject) -> list[Finding]:
    """What is wrong with the row and the events of one link."""
    link = subject.link
    if link.kind == RETENTION:
        return []
    if subject.columns is None:
        return [_finding("missing_row", link, "it is not in the archive")]
    if link.kind == ERASURE:
        return _check_erased(link, subject.columns)
    if link.kind != GENERATION:
        return [_finding("broken_chain", link, f"there are no links of the kind {link.kind}")]
    return _check_generation(subject, subject.columns)


def _check_erased(link: Link, columns: Columns) -> list[Finding]:
    if columns["erased_at_ms"] is None:
        return [_finding("changed_row", link, "what was erased is there again")]
    return _check_digest(link, columns, tombstone_digest(columns))


def _check_generation(subject: Subject, columns: Columns) -> list[Finding]:
    link, found = subject.link, subject.events_digest
    if columns["erased_at_ms"] is not None:
        findings: list[Finding] = []
        if not subject.is_erased:
            findings.append(_finding("changed_row", link, "it says erased, and no link says so"))
        return [*findings, *_check_absent(link, found, "it was erased")]
    findings = _check_digest(link, columns, row_digest(columns))
    if columns["content"] != "full":
        return [*findings, *_check_absent(link, found, "its content was not to be kept")]
    if found is None:
        return [*findings, _finding("missing_events", link, "its log is not there")]
    if found != columns["events_digest"]:
        findings.append(_finding("changed_events", link, "its log is not what was archived"))
    return findings


def _check_digest(link: Link, columns: Columns, computed: str) -> list[Finding]:
    if computed != link.digest:
        return [_finding("changed_row", link, "its facts are not what the link covers")]
    if columns["digest"] != link.digest:
        return [_finding("changed_row", link, "its digest was changed, its facts were not")]
    return []


def _check_absent(link: Link, found: str | None, why: str) -> list[Finding]:
    return [] if found is None else [_finding("unexpected_events", link, f"a log, though {why}")]


def _finding(kind: str, link: Link, detail: str) -> Finding:
    return Finding(kind, link.day, link.position, link.generation_id, detail)


def unlinked(generation_id: str) -> Finding:
    """A row that no link names."""
    return Finding("unlinked_row", "", -1, generation_id, "no link of the chain covers it")


class Head(NamedTuple):
    """A place of the chain, as an operator keeps it elsewhere."""

    day: str
    position: int
    chain_digest: str

    def __str__(self) -> str:
        return f"{self.day}/{self.position}:{self.chain_digest}"


def head_of(link: Link) -> Head:
    return Head(link.day, link.position, link.chain_digest)


def check_head(expected: Head, found: Link | None) -> list[Finding]:
    """found: the link at the place of the expected head."""
    place = expected.day, expected.position, "" if found is None else found.generation_id
    if found is None:
        return [Finding("missing_head", *place, "the chain has no link there: its end was removed")]
    if found.chain_digest != expected.chain_digest:
        return [Finding("changed_head", *place, "another link stands there than was expected")]
    return []
