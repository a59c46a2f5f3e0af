"""Whatever is falsified in the archive is found and named; what is right is not. On a real SQLite."""

import datetime

import pytest
from sqlalchemy import text

from services.bus.connection import Bus
from services.database.engine import transaction
from services.streams.archive.store import ArchiveStore
from services.streams.audit.verification import Head
from services.streams.audit.verifier import Extent
from tests.golden.cases import CASES
from tests.support import tampering
from tests.support.archive import Rig, write_case
from tests.support.tampering import DAYS, PER_DAY, TAMPERINGS, Tampering, tamper, verify

N_ROWS = PER_DAY * len(DAYS)


def days(first: str, last: str) -> Extent:
    return Extent(
        first_day=datetime.date.fromisoformat(first), last_day=datetime.date.fromisoformat(last)
    )


async def test_nothing_is_wrong(archive: ArchiveStore, ids: list[str]) -> None:
    findings, verdict = await verify(archive.engine)
    assert findings == []
    assert verdict.is_intact
    assert verdict.n_links == len(ids) == N_ROWS
    assert verdict.head is not None
    assert verdict.head[:2] == (DAYS[-1], PER_DAY - 1)


@pytest.mark.parametrize("content", ["full", "hashes", "none"])
async def test_every_kind_of_log(bus: Bus, archive: ArchiveStore, content: str) -> None:
    """What the database gives back has the digest of what was put in."""
    ids = [await write_case(bus, case, content=content) for case in CASES.values()]
    assert await Rig(bus, archive).archive(*ids) == len(ids)
    findings, verdict = await verify(archive.engine)
    assert (findings, verdict.n_links) == ([], len(ids))


async def test_an_empty_archive_is_intact(archive: ArchiveStore) -> None:
    findings, verdict = await verify(archive.engine)
    assert (findings, verdict.n_links, verdict.head) == ([], 0, None)


@pytest.mark.parametrize("case", TAMPERINGS, ids=[each.name for each in TAMPERINGS])
async def test_what_was_falsified_is_found(
    archive: ArchiveStore, ids: list[str], case: Tampering
) -> None:
    await tamper(archive.engine, case, ids)
    findings, verdict = await verify(archive.engine)
    tampering.check(case, findings, ids)
    assert not verdict.is_intact


async def test_days_are_verified_alone(archive: ArchiveStore, ids: list[str]) -> None:
    case = next(each for each in TAMPERINGS if each.name == "a_fact")
    await tamper(archive.engine, case, ids)
    for extent, n_links, n_findings in (
        (days(DAYS[0], DAYS[0]), PER_DAY, 0),
        (days(DAYS[1], "2026-03-03"), PER_DAY, 1),
        (days(DAYS[2], "2026-12-31"), PER_DAY, 0),
        (days("2026-01-01", DAYS[1]), 2 * PER_DAY, 1),
        (days("2027-01-01", "2027-01-01"), 0, 0),
    ):
        findings, verdict = await verify(archive.engine, extent)
        assert (verdict.n_links, len(findings)) == (n_links, n_findings), (extent, findings)


async def test_one_generation_alone(archive: ArchiveStore, ids: list[str]) -> None:
    case = next(each for each in TAMPERINGS if each.name == "a_byte_of_an_answer")
    await tamper(archive.engine, case, ids)
    assert (await verify(archive.engine, Extent(generation_id=ids[4])))[1].is_intact
    [finding], verdict = await verify(archive.engine, Extent(generation_id=ids[5]))
    assert (finding.kind, finding.generation_id, verdict.n_links) == ("changed_events", ids[5], 1)


async def test_who_knows_the_head_misses_the_last(archive: ArchiveStore, ids: list[str]) -> None:
    """Whoever removes the newest rows and their links and the count leaves nothing that contradicts
    itself: only a head that was kept elsewhere does."""
    head = (await verify(archive.engine))[1].head
    case = next(each for each in TAMPERINGS if each.name == "the_last_of_all")
    await tamper(archive.engine, case, ids)
    async with transaction(archive.engine) as session:
        await session.execute(text("UPDATE archive_cursor SET seq = seq - 1 WHERE name = 'chain'"))
    assert (await verify(archive.engine))[1].is_intact
    [finding], _ = await verify(archive.engine, Extent(expected=head))
    assert (finding.kind, finding.position) == ("missing_head", PER_DAY - 1)


async def test_a_head_stays_where_it_was(archive: ArchiveStore, ids: list[str]) -> None:
    head = (await verify(archive.engine))[1].head
    assert head is not None
    await tampering.fill(archive)
    assert (await verify(archive.engine, Extent(expected=head)))[1].is_intact
    other = Head(head.day, head.position, "0" * 64)
    [finding], _ = await verify(archive.engine, Extent(expected=other))
    assert finding.kind == "changed_head"


async def test_what_was_given_up_is_not_missing(archive: ArchiveStore, ids: list[str]) -> None:
    assert await archive.drop_days_before(DAYS[1], DAYS[2]) == PER_DAY
    findings, verdict = await verify(archive.engine)
    assert findings == []
    assert verdict.n_links == N_ROWS - PER_DAY + 2, "the last of what was, and what says so"
    assert await archive.drop_days_before("2026-03-05", "2026-03-06") == 2 * PER_DAY
    assert (await verify(archive.engine))[0] == []


async def test_that_it_was_given_up_must_be_said(archive: ArchiveStore, ids: list[str]) -> None:
    await archive.drop_days_before(DAYS[1], DAYS[2])
    async with transaction(archive.engine) as session:
        await session.execute(text("DELETE FROM audit_chain WHERE kind = 'retention'"))
    assert [each.kind for each in (await verify(archive.engine))[0]] == ["missing_link"]
