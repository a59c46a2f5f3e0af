"""Archiving on a real broker and a real SQLite: nothing is lost and nothing is doubled."""

import asyncio
import logging
from collections.abc import Sequence

import pytest

from schemas import subjects
from schemas.errors import RequestError
from schemas.rpc import ArchiveDescription, DescribeArchive
from services.bus.ack_pipe import AckPipe
from services.bus.connection import Bus
from services.bus.ended import HintQueue
from services.database.errors import DatabaseUnavailable
from services.streams.archive.archiver import Archiver
from services.streams.archive.digests import is_next
from services.streams.archive.serving import ArchiveDesk
from services.streams.archive.store import ArchiveStore, open_archive
from services.streams.archive.summary import Record
from services.streams.archive.tables import ArchivedEvents, ArchivedGeneration
from services.streams.archive.writing import RecordWriter, when_there
from tests.golden.cases import CASES
from tests.support import events
from tests.support.archive import Rig, check, ids_of, links, record_named, write_case

CASE = CASES["simple.openai.chat"]


async def fetched(bus: Bus, *generation_ids: str) -> list[object]:
    """The hints of these generations, taken off the queue."""
    queue = HintQueue(bus)
    hints = [hint for hint in await queue.fetch(500) if hint.generation_id in generation_ids]
    await queue.stop()
    return list(hints)


async def test_a_hint_leads_to_a_row(bus: Bus, rig: Rig) -> None:
    ids = [await write_case(bus, case) for case in CASES.values()]
    queue = HintQueue(bus)
    n_left = len(ids)
    while n_left:
        hints = [hint for hint in await queue.fetch(50) if hint.generation_id in ids]
        await rig.archiver.take(hints)
        n_left -= len(hints)
    await queue.stop()
    await check(rig.store, ids)
    assert rig.writer.n_archived == len(ids)


async def test_again_is_no_news(bus: Bus, rig: Rig) -> None:
    ids = [await write_case(bus, CASE) for _ in range(3)]
    assert await rig.archive(*ids[:2], ids[0]) == 2
    assert await rig.archive(*ids) == 1
    await check(rig.store, ids)


async def test_two_archivers_at_once(bus: Bus, rig: Rig, url: str) -> None:
    ids = [await write_case(bus, CASE) for _ in range(80)]
    other_store = await open_archive(url)
    other = Rig(bus, other_store)
    counts = await asyncio.gather(
        rig.archive(*ids), other.archive(*ids), rig.archive(*reversed(ids))
    )
    assert sum(counts) == len(ids)
    await check(rig.store, ids)
    await other_store.close()


async def test_what_has_not_ended_is_left_alone(bus: Bus, rig: Rig) -> None:
    assert await rig.archive(await write_case(bus, CASE[:-1])) == 0
    assert await ids_of(rig.store, ArchivedGeneration) == []


class Dying(Exception):
    """The process is gone."""


async def test_death_between_transaction_and_acknowledgement(bus: Bus, rig: Rig) -> None:
    generation_id = await write_case(bus, CASE)
    (hint,) = await fetched(bus, generation_id)

    class Deaf:
        def __init__(self) -> None:
            self.generation_id = generation_id

        async def ack(self) -> None:
            raise Dying

        async def nak(self, delay_s: float) -> None:
            raise AssertionError

    with pytest.raises(Dying):
        await rig.archiver.take([Deaf()])
    await check(rig.store, [generation_id])
    await hint.nak(0)  # type: ignore[attr-defined]
    (again,) = await fetched(bus, generation_id)
    await rig.archiver.take([again])  # type: ignore[list-item]
    await check(rig.store, [generation_id])
    assert await fetched(bus, generation_id) == []


class Away:
    """A database that refuses until it is back, or only records that it does not like."""

    def __init__(self, store: ArchiveStore) -> None:
        self.store = store
        self.n_refused = 0
        self.n_away = 0
        self.bad: set[str] = set()

    async def add(self, records: Sequence[Record], today: str) -> int:
        is_bad = any(record.generation_id in self.bad for record in records)
        if self.n_away > 0 or is_bad:
            self.n_away -= 1
            self.n_refused += 1
            raise DatabaseUnavailable("away")
        return await self.store.add(records, today)


def rig_over(rig: Rig, away: Away) -> Rig:
    rig.writer = RecordWriter(away, rig.clock, first_retry_s=0.001)
    rig.archiver = Archiver(rig.writer, rig._read, rig._digest, rig.clock)
    return rig


async def test_a_database_that_is_away_loses_nothing_and_floods_no_log(
    bus: Bus, rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    away = Away(rig.store)
    away.n_away = 12
    ids = [await write_case(bus, CASE) for _ in range(3)]
    assert await rig_over(rig, away).archive(*ids) == 3
    await check(rig.store, ids)
    lines = [record.getMessage() for record in caplog.records]
    assert len([line for line in lines if "archive_waits" in line]) == 1
    assert len([line for line in lines if "archive_goes_on" in line]) == 1
    assert away.n_refused == 12


async def test_a_record_that_is_refused_alone_holds_up_nobody(
    bus: Bus, rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    ids = [await write_case(bus, CASE) for _ in range(4)]
    away = Away(rig.store)
    away.bad = {ids[1]}
    assert await rig_over(rig, away).archive(*ids) == 3
    assert await rig.archive(ids[1]) == 0, "not again at once"
    await check(rig.store, [ids[0], *ids[2:]])
    lines = [record.getMessage() for record in caplog.records]
    assert len([line for line in lines if "archive_refused" in line]) == 1
    away.bad = set()
    rig.clock.ms += 3_600_000
    assert await rig.archive(ids[1]) == 1


async def test_a_database_that_comes_late_is_waited_for(url: str) -> None:
    n_left = 2

    async def open_() -> ArchiveStore:
        nonlocal n_left
        n_left -= 1
        if n_left >= 0:
            raise DatabaseUnavailable("not yet")
        return await open_archive(url)

    store = await when_there(open_)
    assert await store.count() == 0
    await store.close()


async def test_old_days_go_and_the_chain_says_so(store: ArchiveStore) -> None:
    days = ("2026-11-26", "2026-11-26", "2026-11-27", "2026-11-28", "2026-11-29")
    ids = [f"00000000-0000-7000-8000-00000000000{n}" for n in range(len(days))]
    for generation_id, day in zip(ids, days, strict=True):
        await store.add([record_named(generation_id)], day)
    assert await store.drop_days_before("2026-11-28", "2026-11-30") == 3
    assert await store.drop_days_before("2026-11-28", "2026-11-30") == 0
    assert await ids_of(store, ArchivedGeneration) == ids[3:]
    assert await ids_of(store, ArchivedEvents) == ids[3:]
    anchor, *rest = await links(store)
    assert (anchor.day, anchor.generation_id) == ("2026-11-27", ids[2])
    assert [link.kind for link in rest] == ["generation", "generation", "retention"]
    for last, link in zip([anchor, *rest], rest, strict=False):
        assert is_next(last, link)
    assert (rest[-1].generation_id, rest[-1].digest) == ("2026-11-27/0", anchor.chain_digest)
    assert await store.drop_days_before("2026-11-30", "2026-12-01") == 2
    assert [link.kind for link in await links(store)] == ["generation", "retention", "retention"]
    assert await store.count() == 5


async def test_whoever_asks_while_the_process_starts_waits(store: ArchiveStore) -> None:
    desk = ArchiveDesk(10_000)
    asking = asyncio.create_task(desk.answer(DescribeArchive()))
    await asyncio.sleep(0)
    assert not asking.done()
    desk.open(store)
    assert await asking == ArchiveDescription(n_archived=0)
    failed = ArchiveDesk(10_000)
    failed.give_up()
    with pytest.raises(RequestError, match="not there yet"):
        await failed.answer(DescribeArchive())


async def test_a_log_that_nobody_can_read_holds_up_nobody(bus: Bus, rig: Rig) -> None:
    ids = [await write_case(bus, CASE) for _ in range(2)]
    broken = events.new_id()
    await bus.part(AckPipe).publish(subjects.generation(broken), b"\xc1", {})
    assert await rig.archive(ids[0], broken, ids[1]) == 2
    assert rig.writer.is_refused(broken)
