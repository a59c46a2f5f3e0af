"""The audit on a real PostgreSQL: what was falsified is found, erasure, pages, ten thousand rows."""

import asyncio
from collections.abc import Iterator

import pytest
from testcontainers.community.postgres import PostgresContainer

from services.bus.connection import Bus
from services.streams.archive.store import ArchiveStore, open_archive
from services.streams.audit.erasing import erase
from services.streams.audit.filters import Cursor, PageQuery, parse_query
from services.streams.audit.store import AuditStore
from services.streams.audit.verifier import Extent
from tests.golden.cases import CASES
from tests.support import many_archived, tampering
from tests.support.archive import Rig, write_case
from tests.support.audit_api import audit_api
from tests.support.tampering import TAMPERINGS, clear, fill, tamper, verify

READY_S = 60


@pytest.fixture(scope="module")
def postgres(docker: None) -> Iterator[PostgresContainer]:
    with PostgresContainer("postgres:15", driver="asyncpg") as running:
        yield running


async def test_whatever_was_falsified_is_found(store: ArchiveStore) -> None:
    for case in TAMPERINGS:
        await clear(store.engine)
        ids = await fill(store)
        assert (await verify(store.engine))[0] == [], case.name
        await tamper(store.engine, case, ids)
        tampering.check(case, (await verify(store.engine))[0], ids)


async def test_erasure_keeps_the_chain(store: ArchiveStore) -> None:
    ids = await fill(store)
    head = (await verify(store.engine))[1].head
    erased = await erase(store.engine, ids[3:6], 1_800_000_000_000)
    assert {each.generation_id for each in erased} == set(ids[3:6])
    assert await erase(store.engine, ids[3:6], 1_800_000_000_000) == []
    findings, verdict = await verify(store.engine, Extent(expected=head))
    assert (findings, verdict.n_links) == ([], len(ids) + 3)
    audit = AuditStore(store.engine)
    assert set(await audit.packed(ids)) == set(ids) - set(ids[3:6])
    assert await store.drop_days_before(tampering.DAYS[1], "2027-01-16") == tampering.PER_DAY
    assert (await verify(store.engine))[0] == []


async def test_every_kind_of_log(bus: Bus, store: ArchiveStore) -> None:
    ids = [await write_case(bus, case) for case in CASES.values()]
    ids.append(await write_case(bus, CASES["simple.openai.chat"], caller="k\0", content="hashes"))
    assert await Rig(bus, store).archive(*ids) == len(ids)
    findings, verdict = await verify(store.engine)
    assert (findings, verdict.n_links) == ([], len(ids))


async def test_erasures_at_once(store: ArchiveStore, url: str) -> None:
    ids = await fill(store)
    others = [await open_archive(url) for _ in range(3)]
    works = [erase(each.engine, ids, 1_800_000_000_000) for each in others]
    assert sum(map(len, await asyncio.gather(*works))) == len(ids)
    for each in others:
        await each.close()
    assert (await verify(store.engine))[0] == []


async def test_pages(store: ArchiveStore) -> None:
    ids = await fill(store)
    audit, query, found = AuditStore(store.engine), PageQuery(limit=5), list[str]()
    while rows := await audit.page(query):
        found += [str(row["generation_id"]) for row in rows]
        last = rows[-1]
        cursor = Cursor(int(str(last["created_at_ms"])), str(last["generation_id"]))
        query = PageQuery(limit=5, after=cursor)
    assert sorted(found) == sorted(ids)
    [row] = await audit.page(parse_query({"id": ids[2], "caller": "", "outcome": "finished"}))
    assert row["generation_id"] == ids[2]


async def test_over_http(bus: Bus, store: ArchiveStore, url: str) -> None:
    ids = await fill(store)
    async with audit_api(bus, url) as client:
        page = (await client.get("/v1/audit/generations", params={"limit": "3"})).json()
        assert (len(page["data"]), page["has_more"]) == (3, True)
        assert (await client.delete(f"/v1/audit/generations/{ids[0]}")).status_code == 200
        assert '"is_intact":true' in (await client.post("/v1/audit/verify", json={})).text


async def test_ten_thousand(store: ArchiveStore) -> None:
    await many_archived.fill(store)
    took = await many_archived.look(store)
    print({name: f"{seconds:.3f} s" for name, seconds in took.items()})
