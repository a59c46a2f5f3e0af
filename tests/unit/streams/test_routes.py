"""The routes of resumable streams, over fakes."""

import asyncio
from collections.abc import AsyncIterator

import httpx
import msgspec
import pytest
from fastapi import FastAPI
from starlette.types import Message

from schemas.tasks import ConversationEntry
from services.edge.auth import install_auth, key_id
from services.edge.body import install_body_handlers
from services.edge.errors import install_error_handlers
from services.streams.config import StreamsSettings
from services.streams.conversations import Conversations
from services.streams.ending import LogEnder
from services.streams.hub import Hub
from services.streams.routes import StreamRoutes
from tests.golden.cases import CASES, CREATED_AT_MS, GENERATION_ID
from tests.golden.write import tape_of
from tests.support.fake_logs import FakeKeys, FakeLogs

CASE = CASES["resumable.openai.chat"]
WHOLE = tape_of(CASE).cut(0)
KEYS = ("mine", "yours")
MINE = {"Authorization": "Bearer mine"}
YOURS = {"Authorization": "Bearer yours"}


async def turns(n: int = 50) -> None:
    """Let everything that is ready run."""
    for _ in range(n):
        await asyncio.sleep(0)


class Site:
    """The read side over fakes, with a client whose key is `mine`."""

    def __init__(self) -> None:
        self.logs = FakeLogs()
        self.hub = Hub(self.logs, StreamsSettings())
        self.conversations = Conversations(FakeKeys(), self.logs)
        ender = LogEnder(self.logs, self.logs)
        self.app = app = FastAPI()
        install_error_handlers(app)
        install_body_handlers(app)
        install_auth(app, KEYS)
        app.include_router(StreamRoutes(self.hub, self.conversations, ender).router())
        transport = httpx.ASGITransport(app)
        self.client = httpx.AsyncClient(transport=transport, base_url="http://x", headers=MINE)

    async def begin(self, n_events: int = len(CASE)) -> None:
        """A conversation `talk` of `mine`, with that many events in its log."""
        self.logs.write(GENERATION_ID, *CASE[:n_events])
        entry = ConversationEntry(
            conversation_id="talk",
            generation_id=GENERATION_ID,
            dialect="openai.chat",
            started_at_s=CREATED_AT_MS // 1000,
        )
        await self.conversations.swap(key_id("mine"), "talk", entry)


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    site = Site()
    yield site
    await site.client.aclose()
    await site.hub.close()


async def test_a_replay_is_the_whole_stream(site: Site) -> None:
    await site.begin()
    answer = await site.client.get("/v1/stream?conv_id=talk")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/event-stream"
    assert answer.content == WHOLE


@pytest.mark.parametrize("offset", [0, 1, 100, len(WHOLE) - 1])
async def test_from_is_an_offset_in_bytes(site: Site, offset: int) -> None:
    await site.begin()
    answer = await site.client.get(f"/v1/stream?conv_id=talk&from={offset}")
    assert answer.content == WHOLE[offset:]


@pytest.mark.parametrize("offset", [len(WHOLE), 10**12])
async def test_past_the_end_there_is_nothing(site: Site, offset: int) -> None:
    await site.begin()
    answer = await site.client.get(f"/v1/stream?conv_id=talk&from={offset}")
    assert (answer.status_code, answer.content) == (200, b"")


async def test_the_last_event_id_wins_over_from(site: Site) -> None:
    await site.begin()
    headers = {"Last-Event-ID": "3"}
    answer = await site.client.get("/v1/stream?conv_id=talk&from=1", headers=headers)
    assert answer.content == WHOLE[WHOLE.index(b"id: 4\n") :]


@pytest.mark.parametrize(
    ("query", "headers", "status", "message"),
    [
        ("", {}, 400, "Missing conversation id in path"),
        ("conv_id=", {}, 400, "Missing conversation id in path"),
        ("conv_id=nobody", {}, 404, "Stream not found or expired"),
        ("conv_id=nobody&from=x", {}, 404, "Stream not found or expired"),
        ("conv_id=talk&from=x", {}, 400, "Invalid 'from' offset"),
        ("conv_id=talk&from=-1", {}, 400, "Invalid 'from' offset"),
        ("conv_id=talk&from=12abc", {}, 400, "Invalid 'from' offset"),
        ("conv_id=talk&from=%2B1", {}, 400, "Invalid 'from' offset"),
        ("conv_id=talk&from=1e3", {}, 400, "Invalid 'from' offset"),
        ("conv_id=talk&from=%D9%A3", {}, 400, "Invalid 'from' offset"),
        ("conv_id=talk&from=" + "9" * 5000, {}, 400, "Invalid 'from' offset"),
        ("conv_id=talk", {"Last-Event-ID": "x"}, 400, "Invalid 'Last-Event-ID'"),
        ("conv_id=talk", YOURS, 404, "Stream not found or expired"),
        ("conv_id=talk", {"Authorization": "Bearer wrong"}, 401, "Invalid API Key"),
    ],
)
async def test_what_is_wrong_is_said(
    site: Site, query: str, headers: dict[str, str], status: int, message: str
) -> None:
    await site.begin()
    answer = await site.client.get(f"/v1/stream?{query}", headers=headers)
    assert answer.status_code == status
    error = answer.json()["error"]
    assert (error["code"], error["message"]) == (status, message)


async def test_an_entry_without_a_log_is_not_found(site: Site) -> None:
    await site.begin(0)
    assert (await site.client.get("/v1/stream?conv_id=talk")).status_code == 404


async def test_a_generation_that_failed_before_it_began_answers_with_its_problem(
    site: Site,
) -> None:
    await site.begin(2)
    site.logs.write(GENERATION_ID, CASES["failed_early.openai.chat"][-1])
    answer = await site.client.get("/v1/stream?conv_id=talk")
    assert answer.status_code == 400
    assert answer.json()["error"]["n_ctx"] == 256


async def test_a_queued_generation_answers_once_it_starts(site: Site) -> None:
    await site.begin(2)
    asking = asyncio.create_task(site.client.get("/v1/stream?conv_id=talk"))
    await turns()
    tape = site.hub.peek(GENERATION_ID)
    assert tape is not None
    assert tape.n_readers == 1
    assert not asking.done()
    site.logs.write(GENERATION_ID, *CASE[2:])
    assert (await asking).content == WHOLE
    assert tape.n_readers == 0


async def test_a_client_that_leaves_the_queue_lets_go_of_the_tape(site: Site) -> None:
    await site.begin(2)
    left = asyncio.Event()
    sent: list[Message] = []

    async def receive() -> Message:
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": "/v1/stream", "raw_path": b"/v1/stream"}
    scope |= {"query_string": b"conv_id=talk", "headers": [(b"x-api-key", b"mine")]}
    asking = asyncio.create_task(site.app(scope, receive, send))
    await turns()
    tape = site.hub.peek(GENERATION_ID)
    assert tape is not None
    assert tape.n_readers == 1
    left.set()
    await asking
    assert tape.n_readers == 0
    assert sent[0]["status"] == 499


async def test_a_running_stream_shows_its_bytes_so_far(site: Site) -> None:
    await site.begin(6)
    with await site.hub.open(GENERATION_ID) as tape:
        body = {"conversation_ids": ["talk"]}
        (shown,) = (await site.client.post("/v1/streams/lookup", json=body)).json()
        assert shown["total_bytes"] == tape.n_bytes > 0


async def test_a_log_of_a_newer_build_is_unavailable_here(site: Site) -> None:
    await site.begin(0)
    newer = msgspec.structs.replace(CASE[0], render=99)
    site.logs.write(GENERATION_ID, newer, *CASE[1:])
    answer = await site.client.get("/v1/stream?conv_id=talk")
    assert answer.status_code == 503
    assert "in version 99" in answer.json()["error"]["message"]


async def test_lookup_shows_what_is_asked_for_and_owned(site: Site) -> None:
    await site.begin()
    body = {"conversation_ids": ["talk", "nobody", 7, ""]}
    answer = await site.client.post("/v1/streams/lookup", json=body)
    assert answer.json() == [
        {
            "conversation_id": "talk",
            "is_done": False,
            "total_bytes": 0,
            "started_at": CREATED_AT_MS // 1000,
            "completed_at": 0,
        }
    ]
    assert (await site.client.post("/v1/streams/lookup", json=body, headers=YOURS)).json() == []


@pytest.mark.parametrize("body", [b"{}", b'{"conversation_ids": "talk"}'])
async def test_a_lookup_of_nothing_is_empty(site: Site, body: bytes) -> None:
    answer = await site.client.post("/v1/streams/lookup", content=body)
    assert (answer.status_code, answer.json()) == (200, [])


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"[" * 200_000, b'{"conversation_ids": ["\xff"]}']
)
async def test_a_bad_lookup_is_refused(site: Site, body: bytes) -> None:
    answer = await site.client.post("/v1/streams/lookup", content=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"].startswith("invalid body: ")


async def test_delete_cancels_removes_and_can_be_repeated(site: Site) -> None:
    await site.begin(4)
    for _ in range(2):
        answer = await site.client.delete("/v1/stream?conv_id=talk")
        assert (answer.status_code, answer.content) == (204, b"")
    end = site.logs.entries(GENERATION_ID)[-1].events[-1]
    assert (end.by, end.reason) == ("streams", "deleted")  # type: ignore[union-attr]
    assert site.logs.pokes == [("k", GENERATION_ID)]
    assert (await site.client.get("/v1/stream?conv_id=talk")).status_code == 404


async def test_delete_of_what_others_own_does_nothing(site: Site) -> None:
    await site.begin(4)
    answer = await site.client.delete("/v1/stream?conv_id=talk", headers=YOURS)
    assert answer.status_code == 204
    assert len(site.logs.entries(GENERATION_ID)) == 1
    assert (await site.client.delete("/v1/stream")).status_code == 400
