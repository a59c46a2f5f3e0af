"""Erased is erased, in the archive and on the broker, and the chain says so for good."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from sqlalchemy import text

from schemas.tasks import ConversationEntry
from services.bus.connection import Bus
from services.bus.log import read_log
from services.database.engine import transaction
from services.streams.archive.store import ArchiveStore
from services.streams.archive.tables import ArchivedGeneration
from services.streams.audit.erasing import erase
from services.streams.audit.store import AuditStore, facts_of
from services.streams.audit.verifier import Extent
from services.streams.bootstrap import create_conversations
from tests.golden.cases import CASES, CREATED_AT_MS
from tests.support.archive import Rig, write_case
from tests.support.audit_api import audit_api
from tests.support.tampering import verify

CASE = CASES["simple.openai.chat"]
LIST = "/v1/audit/generations"
SECRET = "conversation-of-mine"


@pytest.fixture
def rig(bus: Bus, archive: ArchiveStore) -> Rig:
    return Rig(bus, archive)


@pytest.fixture
async def client(bus: Bus, url: str, archive: ArchiveStore) -> AsyncIterator[httpx.AsyncClient]:
    async with audit_api(bus, url) as opened:
        yield opened


async def archived(rig: Rig, caller: str = "k1") -> str:
    """A generation of that caller's, in a conversation of its own, hot and archived."""
    generation_id = await write_case(rig.bus, CASE, caller=caller, conversation=SECRET)
    entry = ConversationEntry(
        conversation_id=SECRET, generation_id=generation_id, dialect="openai.chat"
    )
    await create_conversations(rig.bus).swap(caller, SECRET, entry)
    assert await rig.archive(generation_id) == 1
    return generation_id


async def test_content_goes_and_figures_stay(client: httpx.AsyncClient, rig: Rig) -> None:
    generation_id, other = await archived(rig), await archived(rig, "k2")
    before = (await client.get(f"{LIST}/{generation_id}")).json()
    left = (await client.delete(f"{LIST}/{generation_id}")).json()
    changed = {name for name in before if before[name] != left[name]}
    assert changed == {
        *("conversation", "params", "request_hash", "prompt_hash", "output_hash"),
        *("events_digest", "erased_at_ms", "digest"),
    }
    assert not any(left[name] for name in changed - {"erased_at_ms", "digest"})
    assert (await client.get(f"{LIST}/{generation_id}/events")).status_code == 404
    assert (await client.get(f"{LIST}/{other}/events")).status_code == 200
    findings, verdict = await verify(rig.store.engine)
    assert (findings, verdict.n_links) == ([], 3)


async def test_the_broker_keeps_nothing_of_it(
    client: httpx.AsyncClient, rig: Rig, bus: Bus
) -> None:
    generation_id = await archived(rig)
    assert (await client.delete(f"{LIST}/{generation_id}")).status_code == 200
    [entry] = await read_log(bus, generation_id)
    [end] = entry.events
    assert end.__class__.__name__ == "Failed", "nobody can open that log anew"
    assert await create_conversations(bus).find("k1", SECRET) is None


async def test_twice_is_once(client: httpx.AsyncClient, rig: Rig) -> None:
    generation_id = await archived(rig)
    first = (await client.delete(f"{LIST}/{generation_id}")).json()
    assert (await client.delete(f"{LIST}/{generation_id}")).json() == first
    assert (await verify(rig.store.engine))[1].n_links == 2


async def test_all_of_a_caller(client: httpx.AsyncClient, rig: Rig) -> None:
    ours = [await archived(rig) for _ in range(3)]
    other = await archived(rig, "k2")
    answer = (await client.delete("/v1/audit/callers/k1")).json()
    assert answer == {"object": "audit.erasure", "caller": "k1", "n_erased": 3}
    assert (await client.delete("/v1/audit/callers/k1")).json()["n_erased"] == 0
    assert (await client.get(f"{LIST}/{other}/events")).status_code == 200
    page = (await client.get(LIST, params={"caller": "k1"})).json()
    assert {each["generation_id"] for each in page["data"]} == set(ours), "tombstones"
    assert (await verify(rig.store.engine))[0] == []


async def test_what_is_not_archived(client: httpx.AsyncClient, bus: Bus) -> None:
    hot = await write_case(bus, CASE[:-1])
    answer = await client.delete(f"{LIST}/{hot}")
    assert (answer.status_code, "retry-after" in answer.headers) == (503, True)
    assert len(await read_log(bus, hot)) == len(CASE) - 1


async def test_the_file_has_no_trace(
    audit_store: AuditStore, archive: ArchiveStore, ids: list[str], tmp_path: Path
) -> None:
    """Neither SQLite's free pages nor its journal hold what was deleted."""
    packed = (await audit_store.packed([ids[5]]))[ids[5]].data
    trace = packed[len(packed) // 2 :]
    files = [tmp_path / "llamatape.db", tmp_path / "llamatape.db-wal"]
    assert any(trace in path.read_bytes() for path in files)
    await erase(archive.engine, [ids[5]], 1_800_000_000_000)
    assert not any(trace in path.read_bytes() for path in files if path.exists())


async def test_a_tombstone_cannot_be_changed(archive: ArchiveStore, ids: list[str]) -> None:
    await erase(archive.engine, ids[4:7], 1_800_000_000_000)
    assert (await verify(archive.engine))[0] == []
    async with transaction(archive.engine) as session:
        for statement in (
            f"UPDATE archived_generations SET n_predicted = 7 WHERE generation_id = '{ids[4]}'",
            f"UPDATE archived_generations SET erased_at_ms = 7 WHERE generation_id = '{ids[5]}'",
            f"DELETE FROM archived_generations WHERE generation_id = '{ids[6]}'",
        ):
            await session.execute(text(statement))
    kinds = [(each.kind, each.generation_id) for each in (await verify(archive.engine))[0]]
    first, *tombstones = kinds
    assert first == ("missing_row", ids[6])
    wanted = [("changed_row", ids[4]), ("changed_row", ids[5]), ("missing_row", ids[6])]
    assert sorted(tombstones) == sorted(wanted)


async def test_erasure_cannot_be_undone_quietly(
    archive: ArchiveStore, audit_store: AuditStore, ids: list[str]
) -> None:
    before = await audit_store.facts(ids[5])
    packed = (await audit_store.packed([ids[5]]))[ids[5]]
    await erase(archive.engine, [ids[5]], 1_800_000_000_000)
    async with transaction(archive.engine) as session:
        statement = text("INSERT INTO archived_events VALUES (:id, :codec, :data)")
        values = {"id": ids[5], "codec": packed.codec, "data": packed.data}
        await session.execute(statement, values)
    assert [each.kind for each in (await verify(archive.engine))[0]] == ["unexpected_events"]
    assert before is not None
    async with transaction(archive.engine) as session:
        row = await session.get(ArchivedGeneration, ids[5])
        assert row is not None
        for name in facts_of(row):
            setattr(row, name, before[name])
    assert [each.kind for each in (await verify(archive.engine))[0]] == ["changed_row"]


@pytest.mark.parametrize("index", [0, 3])
async def test_an_erased_one_may_be_given_up(
    archive: ArchiveStore, ids: list[str], index: int
) -> None:
    """Its row goes with its day, the tombstone's link stays with a later one. The last link of the
    days that go stays, too."""
    await erase(archive.engine, [ids[index]], 1_800_000_000_000)
    await archive.drop_days_before("2026-03-02", "2027-01-16")
    assert (await verify(archive.engine))[0] == []
    assert (await verify(archive.engine, Extent(generation_id=ids[index])))[0] == []


async def test_the_server_erases_what_others_could_not(rig: Rig, bus: Bus) -> None:
    """The command line may work on the database while no broker is there."""
    generation_id, other = await archived(rig), await archived(rig, "k2")
    await erase(rig.store.engine, [generation_id], rig.clock())
    assert len(await read_log(bus, generation_id)) == len(CASE)
    await rig.sweep.once()
    assert await read_log(bus, generation_id) == []
    assert len(await read_log(bus, other)) == len(CASE)


async def test_what_is_left_on_the_broker_stays_as_a_fence(
    client: httpx.AsyncClient, rig: Rig, bus: Bus
) -> None:
    generation_id = await archived(rig)
    await client.delete(f"{LIST}/{generation_id}")
    await rig.sweep.once()
    assert len(await read_log(bus, generation_id)) == 1
    rig.clock.ms = CREATED_AT_MS + 7_200_000
    await rig.sweep.once()
    assert await read_log(bus, generation_id) == []
