"""Archived generations over HTTP: every way to read one finds it, and says so where it cannot."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from schemas import ids, subjects
from services.bus.connection import Bus
from services.bus.ended import backlog
from services.bus.log import count_entries
from services.gateway.metrics import archive_figures
from services.streams.archive.bootstrap import archiving
from services.streams.archive.config import ArchiveSettings
from services.streams.archive.store import open_archive
from tests.support.gateway import Gateway, healthy, running_gateway
from tests.support.scripted_engine import ScriptedEngine

CHAT = "/v1/chat/completions"
STREAMED = {"stream": True, "messages": [{"role": "user", "content": "hi"}]}
PATIENCE_S = 20.0


@pytest.fixture
def settings(url: str) -> ArchiveSettings:
    return ArchiveSettings(database_url=url, hot_window_s=0.0, sweep_s=0.05)


@asynccontextmanager
async def platform(bus: Bus, **settings: object) -> AsyncIterator[Gateway]:
    """A gateway with an engine."""
    key = subjects.model_key(ids.new_generation_id())
    async with running_gateway(bus, key, has_metrics=True, **settings) as gateway:
        engine = ScriptedEngine(bus, key)
        await engine.start()
        await healthy(gateway)
        yield gateway
        await engine.stop()


async def cold(bus: Bus, *answers: httpx.Response) -> None:
    """Until these generations are on the broker no more; it tells nobody of a purge."""
    for answer in answers:
        await until_zero(lambda each=answer: count_entries(bus, each.headers["x-generation-id"]))


async def until_zero(count: Callable[[], Awaitable[int]]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        n = await count()
        while n:
            await asyncio.sleep(0.02)
            n = await count()


async def chat(gateway: Gateway, conversation: str = "talk", **fields: object) -> httpx.Response:
    headers = {"x-conversation-id": conversation}
    answer = await gateway.client.post(CHAT, json=STREAMED | fields, headers=headers)
    assert answer.status_code == 200, answer.text
    return answer


async def test_every_way_to_read_it(bus: Bus, settings: ArchiveSettings) -> None:
    async with platform(bus) as gateway:
        streamed = await chat(gateway, n=2)
        generation_id = streamed.headers["x-generation-id"]
        client, rendered = gateway.client, {}
        for view in ("openai", "anthropic", "responses", "native"):
            path = f"/v1/generations/{generation_id}/stream?as={view}"
            rendered[path] = (await client.get(path)).content
        response = await client.post("/v1/responses", json={"input": "hi", "model": "any"})
        path = f"/v1/responses/{response.json()['id']}"
        items = (await client.get(f"{path}/input_items")).json()
        async with archiving(bus, settings):
            await cold(bus, streamed, response)
            for offset in (0, 1, len(streamed.content) // 2, len(streamed.content)):
                found = await client.get(f"/v1/stream?conv_id=talk&from={offset}")
                assert found.content == streamed.content[offset:]
            assert (await client.get(path)).json() == response.json()
            assert (await client.get(f"{path}/input_items")).json() == items
            for each, content in rendered.items():
                assert (await client.get(each)).content == content, each
            more = {"input": "more", "model": "any", "previous_response_id": response.json()["id"]}
            assert (await client.post("/v1/responses", json=more)).status_code == 200
            assert (await client.post(f"{path}/cancel")).json() == response.json()
            assert (await client.delete("/v1/stream?conv_id=talk")).status_code == 204
            assert (await client.get("/v1/stream?conv_id=talk")).status_code == 404


async def test_lookup_knows_an_archived_stream(bus: Bus, settings: ArchiveSettings) -> None:
    async with platform(bus) as gateway, archiving(bus, settings):
        streamed = await chat(gateway)
        await cold(bus, streamed)
        body = {"conversation_ids": ["talk"]}
        (found,) = (await gateway.client.post("/v1/streams/lookup", json=body)).json()
        assert (found["is_done"], found["total_bytes"]) == (True, len(streamed.content))


async def test_what_the_archive_forgot_is_not_found(
    bus: Bus, settings: ArchiveSettings, url: str
) -> None:
    async with platform(bus) as gateway, archiving(bus, settings):
        streamed = await chat(gateway)
        response = await gateway.client.post("/v1/responses", json={"input": "hi", "model": "any"})
        await cold(bus, streamed, response)
        store = await open_archive(url)
        assert await store.drop_days_before("9999-01-01", "9999-01-01") == 2
        await store.close()
        generation_id = streamed.headers["x-generation-id"]
        for path in (
            "/v1/stream?conv_id=talk",
            f"/v1/generations/{generation_id}/stream?as=openai",
            f"/v1/responses/{response.json()['id']}",
        ):
            assert (await gateway.client.get(path)).status_code == 404, path


async def test_an_idempotent_retry_finds_an_archived_answer(
    bus: Bus, settings: ArchiveSettings
) -> None:
    windows = dataclasses.replace(settings, idempotency_s=1800.0)
    head = {"idempotency-key": "once"}
    async with platform(bus) as gateway, archiving(bus, windows):
        streamed = await gateway.client.post(CHAT, json=STREAMED, headers=head)
        generation_id = streamed.headers["x-generation-id"]
        await until_zero(lambda: n_beside_fence(bus, generation_id))
        again = await gateway.client.post(CHAT, json=STREAMED, headers=head)
        assert again.headers["x-generation-id"] == generation_id
        assert again.content == streamed.content


@pytest.mark.parametrize("content", ["hashes", "none"])
async def test_what_is_not_kept_says_why(bus: Bus, settings: ArchiveSettings, content: str) -> None:
    async with platform(bus, record_content=content) as gateway, archiving(bus, settings):
        streamed = await chat(gateway)
        response = await gateway.client.post("/v1/responses", json={"input": "hi", "model": "any"})
        await cold(bus, streamed, response)
        generation_id = streamed.headers["x-generation-id"]
        for path in (
            "/v1/stream?conv_id=talk",
            f"/v1/generations/{generation_id}/stream?as=openai",
            f"/v1/responses/{response.json()['id']}",
        ):
            gone = await gateway.client.get(path)
            assert gone.status_code == 404
            assert "was not to be kept" in gone.json()["error"]["message"], path


async def test_an_archive_that_is_not_there_is_no_reason_to_say_not_found(
    bus: Bus, settings: ArchiveSettings
) -> None:
    async with platform(bus) as gateway:
        streamed = await chat(gateway)
        async with archiving(bus, settings):
            await cold(bus, streamed)
        away = await gateway.client.get("/v1/stream?conv_id=talk")
        assert away.status_code == 503
        async with archiving(bus, settings):
            await until_zero(lambda: is_missing(gateway, "/v1/stream?conv_id=talk"))


async def test_a_database_that_is_away_is_a_503(bus: Bus, tmp_path: Path) -> None:
    nowhere = f"sqlite+aiosqlite:///{tmp_path}"  # a folder
    async with (
        platform(bus) as gateway,
        archiving(bus, ArchiveSettings(database_url=nowhere, hot_window_s=0.0, sweep_s=0.05)),
    ):
        unknown = f"/v1/generations/{ids.new_generation_id()}/stream?as=openai"
        assert (await gateway.client.get(unknown)).status_code == 503
        streamed = await chat(gateway)
        hot = await gateway.client.get("/v1/stream?conv_id=talk")
        assert hot.content == streamed.content


async def test_the_figures(bus: Bus, settings: ArchiveSettings) -> None:
    async with platform(bus) as gateway:
        async with archiving(bus, settings):
            await cold(bus, await chat(gateway))
            await until_zero(lambda: n_waiting(bus))
            figures = await archive_figures(bus)
            assert figures is not None
            assert (figures.n_archived or 0) >= 1  # other tests' too, which have the same broker
            assert (figures.n_waiting, figures.lag_s) == (0, 0.0)
        await chat(gateway)
        waiting = await backlog(bus, datetime.now(UTC) + timedelta(seconds=60))
        assert waiting is not None
        assert waiting.n == 1
        assert 55 < waiting.lag_s < 90
        figures = await archive_figures(bus)
        assert figures is not None
        assert figures.n_archived is None


async def test_without_a_database_this_is_said(bus: Bus, caplog: pytest.LogCaptureFixture) -> None:
    async with archiving(bus, ArchiveSettings()):
        assert "no_archive" in caplog.text


async def n_beside_fence(bus: Bus, generation_id: str) -> int:
    return await count_entries(bus, generation_id) - 1


async def n_waiting(bus: Bus) -> int:
    found = await backlog(bus, datetime.now(UTC))
    return 1 if found is None else found.n


async def is_missing(gateway: Gateway, path: str) -> int:
    return (await gateway.client.get(path)).status_code != 200
