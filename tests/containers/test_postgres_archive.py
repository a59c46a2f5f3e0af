"""The archive on a real PostgreSQL: several archivers, a database that is killed, the whole way back."""

import asyncio
from collections.abc import Iterator

import pytest
from testcontainers.community.postgres import PostgresContainer

from schemas import subjects
from schemas.rpc import ArchiveQuestion
from services.bus.connection import Bus
from services.bus.rpc import serve
from services.streams.archive.serving import ArchiveDesk
from services.streams.archive.store import ArchiveStore, open_archive
from services.streams.archive.tables import ArchivedGeneration
from services.streams.bootstrap import create_logs
from services.streams.config import StreamsSettings
from tests.golden.cases import CASES
from tests.support.archive import Rig, check, ids_of, links, record_named, write_case
from tests.support.nats_nodes import free_ports

READY_S = 60


@pytest.fixture(scope="module")
def postgres(docker: None) -> Iterator[PostgresContainer]:
    """With a fixed port, since a test starts it again."""
    made = PostgresContainer("postgres:15", driver="asyncpg")
    with made.with_bind_ports(5432, free_ports(1)[0]) as running:
        yield running


async def test_every_kind_of_log_there_and_back(bus: Bus, store: ArchiveStore) -> None:
    rig, logs = Rig(bus, store), create_logs(bus, StreamsSettings())
    ids = {name: await write_case(bus, case) for name, case in CASES.items()}
    odd = await write_case(bus, CASES["simple.openai.chat"], conversation="a\0b", caller="k\0")
    hot = {name: await logs.read(generation_id) for name, generation_id in ids.items()}
    assert await rig.archive(*ids.values(), odd) == len(ids) + 1
    await check(store, [*ids.values(), odd])
    desk = ArchiveDesk(4096)
    desk.open(store)
    served = await serve(bus, subjects.ARCHIVE_RPC, ArchiveQuestion, desk.answer)
    for name, generation_id in ids.items():
        await rig.purge(generation_id)
        assert [entry.data for entry in await logs.read(generation_id)] == [
            entry.data for entry in hot[name]
        ]
    await served.unsubscribe()


async def test_many_archivers_make_one_chain(bus: Bus, store: ArchiveStore, url: str) -> None:
    ids = [await write_case(bus, CASES["simple.openai.chat"]) for _ in range(100)]
    stores = [await open_archive(url) for _ in range(3)]
    rigs = [Rig(bus, each) for each in stores]
    counts = await asyncio.gather(*(rig.archive(*ids) for rig in rigs))
    assert sum(counts) == len(ids)
    await check(store, ids)
    for each in stores:
        await each.close()


async def test_a_killed_database_loses_and_doubles_nothing(
    bus: Bus, store: ArchiveStore, postgres: PostgresContainer
) -> None:
    ids = [await write_case(bus, CASES["simple.openai.chat"]) for _ in range(200)]
    rigs = [Rig(bus, store), Rig(bus, store)]
    archiving = [asyncio.create_task(rig.archive(*ids)) for rig in rigs]
    n_begun = 0
    while not n_begun:
        n_begun = len(await ids_of(store, ArchivedGeneration))
    container = postgres.get_wrapped_container()
    await asyncio.to_thread(container.kill)
    await asyncio.to_thread(container.start)
    await asyncio.gather(*archiving)
    await check(store, ids)


async def test_old_days_go(store: ArchiveStore) -> None:
    ids = [f"00000000-0000-7000-8000-00000000000{n}" for n in range(3)]
    for generation_id, day in zip(ids, ("2026-11-26", "2026-11-27", "2026-11-29"), strict=True):
        await store.add([record_named(generation_id)], day)
    assert await store.drop_days_before("2026-11-28", "2026-11-30") == 2
    assert await ids_of(store, ArchivedGeneration) == ids[2:]
    assert [link.kind for link in await links(store)] == ["generation", "generation", "retention"]
