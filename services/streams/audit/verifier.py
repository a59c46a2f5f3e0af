"""Walks along the chain and looks at every link, row and log, a page at a time."""

import asyncio
import datetime
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from services.streams.archive.digests import Link, is_next
from services.streams.audit.events import digest_of_packed
from services.streams.audit.verification import (
    Finding,
    Head,
    Loaded,
    Packed,
    Subject,
    Walk,
    check,
    check_head,
    head_of,
    unlinked,
)

if TYPE_CHECKING:
    from services.streams.audit.store import AuditStore

PAGE = 200
"""Links in one transaction."""
LOGS_BYTES = 4 * 1024 * 1024
"""Stored logs that are in memory at once; a single one may be larger."""
ROWS_AT_ONCE = 500
FOREVER_MS = 2**62


@dataclass(frozen=True, kw_only=True)
class Extent:
    """What to verify: everything, the links of some days, or one generation.

    first_day, last_day: inclusive. expected: a head that somebody has kept.
    """

    first_day: datetime.date | None = None
    last_day: datetime.date | None = None
    generation_id: str = ""
    expected: Head | None = None

    @property
    def is_whole(self) -> bool:
        return self.first_day is None and self.last_day is None


@dataclass(frozen=True, kw_only=True)
class Progress:
    """So many links are done."""

    n_links: int


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The end. head: the newest link of the chain, None where it has none."""

    n_links: int
    n_findings: int
    head: Head | None

    @property
    def is_intact(self) -> bool:
        return self.n_findings == 0


Step = Finding | Progress | Verdict


class Verifier:
    """One verification. Event-loop thread; digests are computed on others."""

    def __init__(self, store: "AuditStore", extent: Extent) -> None:
        self._store = store
        self._extent = extent
        self._n_links = 0

    async def run(self) -> AsyncGenerator[Step]:
        """What is wrong, as it is found, with signs of progress; last the verdict. Raises
        DatabaseUnavailable."""
        n_findings = 0
        async for step in self._steps():
            n_findings += isinstance(step, Finding)
            yield step
        last = await self._store.link_before(None)
        head = None if last is None else head_of(last)
        yield Verdict(n_links=self._n_links, n_findings=n_findings, head=head)

    async def _steps(self) -> AsyncGenerator[Finding | Progress]:
        for finding in await self._expected_head():
            yield finding
        steps = self._one() if self._extent.generation_id else self._days()
        async for step in steps:
            yield step

    async def _expected_head(self) -> list[Finding]:
        expected = self._extent.expected
        if expected is None:
            return []
        found = await self._store.link_at((expected.day, expected.position))
        return check_head(expected, found)

    async def _one(self) -> AsyncGenerator[Finding]:
        """The links of one generation, each with the one before it."""
        generation_id = self._extent.generation_id
        links = await self._store.links_of(generation_id)
        if not links and await self._store.facts(generation_id) is not None:
            yield unlinked(generation_id)
        for link in links:
            before = await self._store.link_before((link.day, link.position))
            walk = Walk(before)
            for finding in walk.step(link, ()):
                yield finding
            for finding in await self._look([link]):
                yield finding
        self._n_links = len(links)

    async def _days(self) -> AsyncGenerator[Finding | Progress]:
        first, last = self._extent.first_day, self._extent.last_day
        before = None if first is None else await self._store.link_before((first.isoformat(), -1))
        walk, page = Walk(before), list[Link]()
        async for links in self._pages(None if before is None else (before.day, before.position)):
            around, page = [*page, *links], links
            for link in links:
                for finding in await self._step(walk, link, around):
                    yield finding
            for finding in await self._look(links):
                yield finding
            self._n_links += len(links)
            yield Progress(n_links=self._n_links)
        if last is None:
            for finding in await self._finish(walk):
                yield finding
        async for finding in self._unlinked():
            yield finding

    async def _step(self, walk: Walk, link: Link, around: Sequence[Link]) -> list[Finding]:
        """What is wrong with that link's place, unless the days before it were given up meanwhile."""
        before = walk.last
        findings = walk.step(link, around)
        if findings and before is not None:
            is_gone = await self._store.link_at((before.day, before.position)) is None
            if is_gone and await self._store.links_after(None, 1) == [link]:
                walk.begin_at(link)
                return []
        return findings

    async def _finish(self, walk: Walk) -> list[Finding]:
        """What the end of the chain says. Links that were counted and are not there are missing."""
        findings = walk.finish()
        if self._extent.is_whole and not walk.begins_late and not walk.has_breaks:
            n_made, n_now = await self._store.n_links(), self._n_links
            last = walk.last
            place = ("", -1) if last is None else (last.day, last.position)
            if n_made > n_now and await self._store.link_before(None) == last:
                detail = f"the archive made {n_made} links, {n_now} are there: the last are missing"
                findings.append(Finding("missing_link", *place, "", detail))
        return findings

    async def _pages(self, place: tuple[str, int] | None) -> AsyncGenerator[list[Link]]:
        last = self._extent.last_day
        while links := await self._store.links_after(place, PAGE):
            place = links[-1].day, links[-1].position
            if last is not None and links[-1].day > last.isoformat():
                links = [link for link in links if link.day <= last.isoformat()]
                if links:
                    yield links
                return
            yield links

    async def _look(self, links: Sequence[Link]) -> list[Finding]:
        """What is wrong with the rows and logs of these links."""
        findings: list[Finding] = []
        for batch in _batches(await self._store.load(links)):
            for link in await self._suspects(batch):
                findings += await self._confirm(link)
        return findings

    async def _suspects(self, batch: Sequence[Loaded]) -> list[Link]:
        ids = [each.subject.link.generation_id for each in batch if each.n_bytes >= 0]
        packed = await self._store.packed(ids) if ids else {}
        checked = await asyncio.to_thread(_check_all, [each.subject for each in batch], packed)
        return [subject.link for subject, findings in checked if findings]

    async def _confirm(self, link: Link) -> list[Finding]:
        """Look again: between two looks it may have been erased, or dropped, rightly."""
        [again] = await self._store.load([link])
        packed = await self._store.packed([link.generation_id])
        [(subject, findings)] = await asyncio.to_thread(_check_all, [again.subject], packed)
        if subject.columns is None and await self._was_given_up(subject):
            return []
        if findings and await self._store.link_at((link.day, link.position)) is None:
            return []
        return findings

    async def _was_given_up(self, subject: Subject) -> bool:
        """Whether it went with its day, of which only the last link is left. (That the days were given
        up by a link is looked at elsewhere; an erased one's tombstone may have a link of a later day.)"""
        first = next(iter(await self._store.links_after(None, 1)), None)
        if first is None or is_next(None, first):
            return False
        return not subject.is_linked or first.generation_id == subject.link.generation_id

    async def _unlinked(self) -> AsyncGenerator[Finding]:
        after: str | None = ""
        while after is not None:
            found, after = await self._store.unlinked(after, ROWS_AT_ONCE, self._archived_ms())
            for generation_id in found:
                if not await self._store.links_of(generation_id):
                    yield unlinked(generation_id)

    def _archived_ms(self) -> tuple[int, int]:
        first, last = self._extent.first_day, self._extent.last_day
        day = datetime.timedelta(days=1)
        return (0 if first is None else _ms(first)), (
            FOREVER_MS if last is None else _ms(last + day)
        )


def _ms(day: datetime.date) -> int:
    moment = datetime.datetime.combine(day, datetime.time(), datetime.UTC)
    return round(moment.timestamp() * 1000)


def _batches(loaded: Sequence[Loaded]) -> Iterator[list[Loaded]]:
    """In order, each with about LOGS_BYTES of logs at most."""
    batch, n_bytes = list[Loaded](), 0
    for each in loaded:
        if batch and n_bytes + each.n_bytes > LOGS_BYTES:
            yield batch
            batch, n_bytes = [], 0
        batch.append(each)
        n_bytes += max(each.n_bytes, 0)
    if batch:
        yield batch


def _check_all(
    subjects: Sequence[Subject], packed: dict[str, Packed]
) -> list[tuple[Subject, list[Finding]]]:
    """Computes digests; on a thread."""
    checked: list[tuple[Subject, list[Finding]]] = []
    for subject in subjects:
        log = packed.get(subject.link.generation_id)
        digest = None if log is None else digest_of_packed(log.codec, log.data)
        subject = subject._replace(events_digest=digest)
        checked.append((subject, check(subject)))
    return checked
