"""The audit over HTTP: only for operators, pages that stay what they are, facts, events, verdicts."""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from schemas.keys import KeyRecord
from services.bus.connection import Bus
from services.edge.key_ring import KeyRing, digest_of
from services.streams.archive.store import ArchiveStore
from tests.golden.cases import CASES
from tests.support import events
from tests.support.archive import record_named, write_case
from tests.support.audit_api import ADMIN_KEY, OTHER_KEY, audit_api
from tests.support.tampering import DAYS, TAMPERINGS, tamper

LIST = "/v1/audit/generations"
CASE = CASES["simple.openai.chat"]


@pytest.fixture
async def client(bus: Bus, url: str, archive: ArchiveStore) -> AsyncIterator[httpx.AsyncClient]:
    async with audit_api(bus, url) as opened:
        yield opened


def objects(answer: httpx.Response) -> list[dict[str, Any]]:
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in answer.text.splitlines()]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", LIST),
        ("GET", f"{LIST}/x"),
        ("GET", f"{LIST}/x/events"),
        ("DELETE", f"{LIST}/x"),
        ("DELETE", "/v1/audit/callers/x"),
        ("POST", "/v1/audit/verify"),
    ],
)
async def test_only_an_admin_key_opens_it(
    client: httpx.AsyncClient, method: str, path: str
) -> None:
    for key, status in ((OTHER_KEY, 403), ("sk-unknown", 401)):
        answer = await client.request(method, path, headers={"Authorization": f"Bearer {key}"})
        assert answer.status_code == status, answer.text
    del client.headers["Authorization"]
    assert (await client.request(method, path)).status_code == 401
    client.headers["X-Api-Key"] = ADMIN_KEY
    assert (await client.request(method, path)).status_code not in (401, 403)


async def test_keys_of_the_database(bus: Bus, url: str, archive: ArchiveStore) -> None:
    ring = KeyRing()
    for name, scopes, revoked_at_ms in (
        ("ops", ("admin",), 0),
        ("app", ("generate", "read"), 0),
        ("gone", ("admin",), 1),
    ):
        digest = digest_of(f"sk-{name}")
        record = KeyRecord(id=name, digest=digest, scopes=scopes, revoked_at_ms=revoked_at_ms)
        ring.learn(digest, record)
    async with audit_api(bus, url, ring) as client:
        for name, status in (("ops", 200), ("app", 403), ("gone", 401), ("unknown", 401)):
            head = {"Authorization": f"Bearer sk-{name}"}
            assert (await client.get(LIST, headers=head)).status_code == status, name


async def test_without_keys_it_stays_closed(bus: Bus, url: str, archive: ArchiveStore) -> None:
    async with audit_api(bus, url, KeyRing()) as client:
        answer = await client.get(LIST)
    assert answer.status_code == 403
    assert "--admin-api-key" in answer.json()["error"]["message"]


async def test_a_process_without_an_archive_says_so(bus: Bus) -> None:
    async with audit_api(bus, "") as client:
        answer = await client.get(LIST)
    assert answer.status_code == 501
    assert "--database-url" in answer.json()["error"]["message"]


async def test_a_database_that_is_away_is_a_503(bus: Bus) -> None:
    async with audit_api(bus, "postgresql+asyncpg://nobody:x@127.0.0.1:9/none") as client:
        for answer in (
            await client.get(LIST),
            await client.post("/v1/audit/verify", json={}),
            await client.delete(f"{LIST}/{events.new_id()}"),
        ):
            assert answer.status_code == 503, answer.text
            assert answer.headers["retry-after"]


async def walk(client: httpx.AsyncClient, **query: str) -> list[str]:
    """Ids of all pages."""
    found: list[str] = []
    while True:
        page = (await client.get(LIST, params=query)).json()
        found += [each["generation_id"] for each in page["data"]]
        if not page["has_more"]:
            assert page["next"] is None
            return found
        query["after"] = page["next"]


async def test_pages_show_each_once_newest_first(client: httpx.AsyncClient, ids: list[str]) -> None:
    newest_first = [each["generation_id"] for each in (await client.get(LIST)).json()["data"]]
    assert sorted(newest_first) == sorted(ids)
    for limit in ("1", "5", "12", "1000"):
        assert await walk(client, limit=limit) == newest_first


async def test_pages_are_stable_while_more_comes(
    client: httpx.AsyncClient, archive: ArchiveStore, ids: list[str]
) -> None:
    whole = await walk(client)
    first = (await client.get(LIST, params={"limit": "5"})).json()
    await archive.add([record_named(events.new_id()) for _ in range(5)], DAYS[-1])
    rest = await walk(client, limit="5", after=first["next"])
    assert [each for each in rest if each in ids] == whole[5:]


async def test_filters(client: httpx.AsyncClient, archive: ArchiveStore, ids: list[str]) -> None:
    assert await walk(client, outcome="cancelled") == []
    assert len(await walk(client, outcome="finished", dialect="openai.chat")) == len(ids)
    assert await walk(client, id=ids[3]) == [ids[3]]
    assert ids[3] in await walk(client, id=ids[3][:9].upper())
    assert await walk(client, caller="nobody") == []
    facts = (await client.get(f"{LIST}/{ids[0]}")).json()
    at_ms = facts["created_at_ms"]
    assert ids[0] in await walk(client, **{"from": str(at_ms), "to": str(at_ms + 1)})
    assert await walk(client, to=str(at_ms)) == []
    assert await walk(client, **{"from": "2099-01-01"}) == []


@pytest.mark.parametrize(
    "query",
    [
        {"limit": "0"},
        {"limit": "1001"},
        {"limit": "x"},
        {"after": "x"},
        {"outcome": "x"},
        {"id": "%"},
        {"from": "yesterday"},
        {"to": "9999-99-99"},
        {"caller": "a\0b"},
    ],
)
async def test_bad_queries_are_named(client: httpx.AsyncClient, query: dict[str, str]) -> None:
    answer = await client.get(LIST, params=query)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == next(iter(query))


async def test_facts_and_events(client: httpx.AsyncClient, ids: list[str]) -> None:
    facts = (await client.get(f"{LIST}/{ids[0]}")).json()
    assert facts["object"] == "audit.generation"
    assert (facts["outcome"], facts["n_predicted"], facts["engine"]) == ("finished", 3, "e1")
    assert facts["params"]["sampling"] == {"temperature": 0.0}
    assert [each["attempt"] for each in facts["attempts"]] == [1]
    lines = objects(await client.get(f"{LIST}/{ids[0]}/events"))
    assert [each["type"] for line in lines for each in line["events"]][:3] == [
        "requested",
        "claimed",
        "started",
    ]
    assert lines[0]["events"][0]["request"] == "{}"
    by_answer = f"{LIST}/chatcmpl-{ids[0].replace('-', '')}"
    assert (await client.get(by_answer)).json() == facts


async def test_what_is_not_there(client: httpx.AsyncClient) -> None:
    for path in (f"{LIST}/x", f"{LIST}/{events.new_id()}", f"{LIST}/{events.new_id()}/events"):
        assert (await client.get(path)).status_code == 404


async def test_events_of_a_log_that_is_still_hot(client: httpx.AsyncClient, bus: Bus) -> None:
    generation_id = await write_case(bus, CASE)
    path = f"{LIST}/{generation_id}"
    assert len(objects(await client.get(f"{path}/events"))) == len(CASE)
    assert (await client.get(path)).status_code == 404
    hidden = await write_case(bus, CASE, content="hashes")
    assert (await client.get(f"{LIST}/{hidden}/events")).status_code == 404


async def test_verdicts(client: httpx.AsyncClient, archive: ArchiveStore, ids: list[str]) -> None:
    *_, verdict = objects(await client.post("/v1/audit/verify"))
    assert verdict["object"] == "audit.verdict"
    assert verdict["is_intact"] is True
    case = next(each for each in TAMPERINGS if each.name == "a_fact")
    await tamper(archive.engine, case, ids)
    for body in ({}, {"id": ids[5]}, {"from": DAYS[1], "to": DAYS[1]}):
        found, *_, verdict = objects(await client.post("/v1/audit/verify", json=body))
        assert (found["kind"], found["generation_id"]) == ("changed_row", ids[5])
        assert (verdict["is_intact"], verdict["n_findings"]) == (False, 1)
    body = {"expect_head": f"2030-01-01/7:{'0' * 64}", "id": ids[0]}
    found, *_ = objects(await client.post("/v1/audit/verify", json=body))
    assert found["kind"] == "missing_head"


@pytest.mark.parametrize(
    "body", [{"from": "today"}, {"to": "2026-02-30"}, {"expect_head": "x"}, {"id": 7}]
)
async def test_bad_orders_are_named(client: httpx.AsyncClient, body: dict[str, object]) -> None:
    assert (await client.post("/v1/audit/verify", json=body)).status_code == 400
