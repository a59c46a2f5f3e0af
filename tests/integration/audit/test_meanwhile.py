"""What others do at the same time rightly is no finding: archiving, erasing, giving up old days."""

import datetime
from collections.abc import AsyncIterator

import pytest

from services.streams.archive.store import ArchiveStore
from services.streams.audit import verifier
from services.streams.audit.erasing import erase
from services.streams.audit.store import AuditStore
from services.streams.audit.verification import Finding
from services.streams.audit.verifier import Extent, Progress, Verifier
from tests.support import events
from tests.support.archive import record_named
from tests.support.tampering import verify

DONE = object()
N_DAYS, PER_DAY = 12, 9
FIRST = datetime.date(2026, 3, 1)
ERASED_AT_MS = 1_774_000_000_000  # 2026-03-20


def day(number: int) -> str:
    return (FIRST + datetime.timedelta(days=number)).isoformat()


async def add(store: ArchiveStore, number: int) -> list[str]:
    ids = [events.new_id() for _ in range(PER_DAY)]
    await store.add([record_named(each) for each in ids], day(number))
    return ids


async def work(store: ArchiveStore, ids: list[str]) -> AsyncIterator[None]:
    """Step by step: erase one of each day, give the first half up day by day, and archive more."""
    for number in range(N_DAYS):
        await erase(store.engine, [ids[number * PER_DAY + number % PER_DAY]], ERASED_AT_MS)
        yield
        if number < N_DAYS // 2:
            await store.drop_days_before(day(number + 1), "2026-03-20")
            yield
        await add(store, 30 + number)
        yield


@pytest.mark.parametrize("n_pages", [1, 2, 3, 7])
async def test_it_is_no_finding(
    archive: ArchiveStore, monkeypatch: pytest.MonkeyPatch, n_pages: int
) -> None:
    """Something is done after every so many pages of a verification, until there is nothing to do."""
    monkeypatch.setattr(verifier, "PAGE", 4)  # so that pages end within days
    ids = [each for number in range(N_DAYS) for each in await add(archive, number)]
    todo, is_done, n_rounds = work(archive, ids), False, 0
    while not is_done:
        n_rounds, seen = n_rounds + 1, 0
        async for step in Verifier(AuditStore(archive.engine), Extent()).run():
            assert not isinstance(step, Finding), step
            seen += isinstance(step, Progress)
            if isinstance(step, Progress) and seen % n_pages == 0:
                is_done = await anext(todo, DONE) is DONE
    assert n_rounds > 1 or n_pages < 3
    findings, verdict = await verify(archive.engine)
    assert findings == []
    # Of the days given up one link is left; each erasure and each of the six times has one, too.
    assert verdict.n_links == (N_DAYS // 2 + N_DAYS) * PER_DAY + N_DAYS + N_DAYS // 2 + 1


@pytest.mark.parametrize("n_before", range(1, 8))
async def test_days_may_go_under_its_feet(
    archive: ArchiveStore, monkeypatch: pytest.MonkeyPatch, n_before: int
) -> None:
    monkeypatch.setattr(verifier, "PAGE", 4)
    for number in range(5):
        await add(archive, number)
    seen = 0
    async for step in Verifier(AuditStore(archive.engine), Extent()).run():
        assert not isinstance(step, Finding), step
        seen += isinstance(step, Progress)
        if seen == n_before and isinstance(step, Progress):
            assert await archive.drop_days_before(day(3), day(30)) == 3 * PER_DAY
    assert seen > n_before
