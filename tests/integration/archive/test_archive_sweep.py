"""The sweep: what no hint told of, what is due, what must stay."""

from pathlib import Path

import msgspec
import pytest

from schemas.errors import SERVER, Problem
from schemas.events import Failed
from schemas.generation import Generation
from services.bus.config import BusSettings
from services.bus.connection import Bus, connect
from services.bus.log import LogWriter, count_entries
from services.bus.store import fullness
from services.bus.stored_logs import stored_logs
from services.bus.topology import ensure_topology
from services.cli.broker import start_broker
from services.streams.archive.config import ArchiveSettings
from services.streams.archive.store import ArchiveStore
from services.streams.archive.sweep import ENOUGH, TIGHT
from tests.golden.cases import CASES
from tests.support import events
from tests.support.archive import DAY_MS, ENDED_AT_MS, Rig, write_case

SETTINGS = ArchiveSettings(hot_window_s=600, idempotency_s=1200)
CASE = [
    *CASES["simple.openai.chat"][:-1],
    msgspec.structs.replace(CASES["simple.openai.chat"][-1], at_ms=ENDED_AT_MS),  # type: ignore[type-var]
]
HOT_MS, FENCED_MS = 600_000, 1_200_000


@pytest.fixture
def rig(bus: Bus, store: ArchiveStore) -> Rig:
    return Rig(bus, store, SETTINGS)


async def test_a_lost_hint_is_made_good(bus: Bus, rig: Rig) -> None:
    ids = [await write_case(bus, CASE) for _ in range(40)]
    running = await write_case(bus, CASE[:-1])
    await rig.sweep.once()
    assert (await rig.store.known([*ids, running])).keys() == set(ids)
    await rig.sweep.once()
    assert rig.writer.n_archived >= len(ids)


async def test_what_has_just_ended_is_left_to_its_hint(bus: Bus, rig: Rig) -> None:
    generation_id = await write_case(bus, CASE)
    rig.clock.ms = ENDED_AT_MS + 100
    await rig.sweep.once()
    assert await rig.store.known([generation_id]) == {}


async def test_a_log_goes_after_its_window_and_its_fence_after_the_other(
    bus: Bus, rig: Rig
) -> None:
    generation_id = await write_case(bus, CASE)
    await rig.archive(generation_id)
    n_all = await count_entries(bus, generation_id)
    for after_ms, n_entries in (
        (HOT_MS - 1, n_all),
        (HOT_MS, 1),
        (FENCED_MS - 1, 1),
        (FENCED_MS, 0),
    ):
        rig.clock.ms = ENDED_AT_MS + after_ms
        await rig.sweep.once()
        assert await count_entries(bus, generation_id) == n_entries
    ours = [purge for purge in rig.logs.purges if purge[0] == generation_id]
    assert ours == [(generation_id, True), (generation_id, False)]


async def test_what_is_not_archived_is_never_purged(bus: Bus, rig: Rig) -> None:
    running = await write_case(bus, CASE[:-1])
    refused = await write_case(bus, CASE)
    rig.writer.refuse(refused, ValueError("x"))
    rig.clock.ms = ENDED_AT_MS + DAY_MS
    rig.writer.refuse(refused, ValueError("x"))
    await rig.sweep.once()
    assert await count_entries(bus, running) == len(CASE) - 1
    assert await count_entries(bus, refused) == len(CASE)


async def test_what_was_never_opened_goes_unarchived(bus: Bus, rig: Rig) -> None:
    generation_id = events.new_id()
    problem = Problem(code=SERVER, message="too late")
    failed = Failed(problem=problem, by="streams", at_ms=ENDED_AT_MS)
    await LogWriter(bus).append(Generation(), generation_id, failed)
    await rig.sweep.once()
    assert await count_entries(bus, generation_id) == 1
    rig.clock.ms = ENDED_AT_MS + FENCED_MS
    await rig.sweep.once()
    assert await count_entries(bus, generation_id) == 0
    assert await rig.store.known([generation_id]) == {}


async def test_the_archive_forgets_after_its_days(bus: Bus, store: ArchiveStore) -> None:
    rig = Rig(bus, store, ArchiveSettings(hot_window_s=600, retention_days=2))
    generation_id = await write_case(bus, CASE)
    await rig.archive(generation_id)
    rig.clock.ms += 2 * DAY_MS
    assert await rig.sweep.drop_old() == 0, "two whole days are kept"
    rig.clock.ms += DAY_MS
    assert await rig.sweep.drop_old() == 1
    assert await store.find(generation_id) is None
    for_ever = Rig(bus, store, ArchiveSettings())
    assert await for_ever.sweep.drop_old() == 0


async def test_a_tight_store_makes_room_with_what_the_archive_keeps(bus: Bus, rig: Rig) -> None:
    ids = [await write_case(bus, CASE, content=content) for content in ("full", "hashes", "full")]
    await rig.archive(*ids)
    rig.logs.said = [0.76, 0.70, 0.64]
    await rig.sweep.once()
    n_all = len(CASE)
    assert [await count_entries(bus, each) for each in ids] == [1, n_all, 1], "with a fence"
    rig.logs.said = [0.74]
    later = await write_case(bus, CASE)
    await rig.archive(later)
    await rig.sweep.once()
    assert await count_entries(bus, later) == n_all


async def test_no_more_goes_than_must(bus: Bus, rig: Rig) -> None:
    ids = [await write_case(bus, CASE) for _ in range(60)]
    await rig.archive(*ids)
    rig.logs.said = [0.76, 0.70, 0.60]
    await rig.sweep.once()
    counts = [await count_entries(bus, each) for each in ids]
    assert counts.count(len(CASE)) >= 10
    assert counts.count(1) >= 40


async def test_a_real_store_that_is_tight(tmp_path: Path, store: ArchiveStore) -> None:
    broker = start_broker(tmp_path)
    settings = BusSettings(url=broker.url, token=broker.token, store_max_bytes=1_000_000)
    bus = await connect(settings, name="test")
    await ensure_topology(bus)
    ids: list[str] = []
    while await fullness(bus) < TIGHT:
        ids.append(await write_case(bus, CASE))
    rig = Rig(bus, store, SETTINGS)
    rig.logs.is_told = False
    await rig.archive(*ids)
    await rig.sweep.once()
    assert await fullness(bus) < ENOUGH
    assert set(await stored_logs(bus)) == set(ids), "fences stay"
    await bus.close()
    broker.stop()
