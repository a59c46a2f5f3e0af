"""The routes of resumable streams, over fakes."""

import asyncio
from collections.abc import AsyncIterator

import httpx
import msgspec
import pytest
from fastapi import FastAPI
from starlette.types import Message

from schemas.events import Event
from schemas.tasks import ConversationEntry
from services.edge.auth import install_auth
from services.edge.body import install_body_handlers
from services.edge.errors import install_error_handlers
from services.edge.key_ring import KeyRing, key_id
from services.streams.config import StreamsSettings
from services.streams.conversations import Conversations
from services.streams.ending import LogEnder
from services.streams.forgotten import Forgotten
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
        keys = FakeKeys()
        self.conversations = Conversations(keys, self.logs)
        self.forgotten = Forgotten(keys)
        ender = LogEnder(self.logs, self.logs)
        self.app = app = FastAPI()
        install_error_handlers(app)
        install_body_handlers(app)
        install_auth(app, KeyRing(KEYS))
        app.include_router(
            StreamRoutes(self.hub, self.conversations, self.forgotten, ender).router()
        )
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


PATH = f"/v1/generations/{GENERATION_ID}/stream"
SIMPLE = CASES["simple.openai.chat"]


def owned(site: Site, case: list[Event], *, caller: str = key_id("mine")) -> None:
    """The log of a case, of that caller's."""
    requested, *rest = case
    site.logs.write(GENERATION_ID, msgspec.structs.replace(requested, caller=caller), *rest)


def seen_as(case: str) -> bytes:
    """The golden bytes of a case, with frames numbered."""
    frames = tape_of(CASES[case]).cut(0).split(b"\n\n")[:-1]
    return b"".join(b"id: %d\n%b\n\n" % (n, frame) for n, frame in enumerate(frames, 1))


@pytest.mark.parametrize(
    ("view", "dialect"),
    [
        ("", "openai.chat"),
        ("openai", "openai.chat"),
        ("anthropic", "anthropic.messages"),
        ("responses", "openai.responses"),
        ("native", "native.completion"),
    ],
)
async def test_a_generation_is_rendered_in_the_readers_dialect(
    site: Site, view: str, dialect: str
) -> None:
    owned(site, SIMPLE)
    answer = await site.client.get(PATH, params={"as": view})
    assert answer.headers["content-type"] == "text/event-stream"
    assert answer.content == seen_as(f"simple.{dialect}")


@pytest.mark.parametrize("dialect", ["openai.completion", "native.completion"])
async def test_openai_has_a_dialect_for_texts(site: Site, dialect: str) -> None:
    owned(site, CASES[f"simple.{dialect}"])
    answer = await site.client.get(PATH, params={"as": "openai"})
    assert answer.content == seen_as("simple.openai.completion")


async def test_what_was_not_streamed_can_be_read_as_a_stream(site: Site) -> None:
    owned(site, CASES["body.openai.chat"])
    answer = await site.client.get(PATH, params={"as": "anthropic"})
    assert answer.content == seen_as("simple.anthropic.messages")


async def test_offsets_are_those_of_the_rendering(site: Site) -> None:
    owned(site, SIMPLE)
    whole = seen_as("simple.anthropic.messages")
    by_byte = await site.client.get(PATH, params={"as": "anthropic", "from": "100"})
    by_frame = await site.client.get(
        PATH, params={"as": "anthropic"}, headers={"Last-Event-ID": "2"}
    )
    assert by_byte.content == whole[100:]
    assert by_frame.content == whole[whole.index(b"id: 3\n") :]


@pytest.mark.parametrize("prefix", ["", "chatcmpl-", "resp_", "msg_"])
async def test_ids_of_answers_name_generations_too(site: Site, prefix: str) -> None:
    owned(site, SIMPLE)
    digits = GENERATION_ID.replace("-", "")
    answer = await site.client.get(f"/v1/generations/{prefix}{digits}/stream")
    assert answer.status_code == 200


async def test_renderings_of_one_generation_do_not_meet(site: Site) -> None:
    owned(site, SIMPLE)
    first, second = await asyncio.gather(
        site.client.get(PATH, params={"as": "anthropic"}),
        site.client.get(PATH, params={"as": "native"}),
    )
    assert first.content == seen_as("simple.anthropic.messages")
    assert second.content == seen_as("simple.native.completion")


async def test_a_generation_of_others_does_not_exist(site: Site) -> None:
    owned(site, SIMPLE)
    assert (await site.client.get(PATH, headers=YOURS)).status_code == 404


@pytest.mark.parametrize("name", ["x", "resp_1", "01936b5e-4c00-7abc-8def-0123456789ac"])
async def test_an_unknown_generation_is_not_found(site: Site, name: str) -> None:
    assert (await site.client.get(f"/v1/generations/{name}/stream")).status_code == 404


async def test_an_unknown_dialect_is_refused(site: Site) -> None:
    owned(site, SIMPLE)
    answer = await site.client.get(PATH, params={"as": "morse"})
    assert answer.status_code == 400
    assert "anthropic" in answer.json()["error"]["message"]


async def test_what_was_forgotten_is_not_found(site: Site) -> None:
    owned(site, SIMPLE)
    for _ in range(2):
        await site.forgotten.mark(GENERATION_ID)
    assert (await site.client.get(PATH)).status_code == 404


async def test_what_was_not_to_be_stored_is_not_found(site: Site) -> None:
    requested, *rest = CASES["simple.openai.responses"]
    asked = msgspec.structs.replace(requested, request=b'{"store":false}')
    owned(site, [asked, *rest])
    assert (await site.client.get(PATH)).status_code == 404


async def test_what_failed_before_its_start_is_an_error(site: Site) -> None:
    owned(site, CASES["failed_early.openai.chat"])
    assert (await site.client.get(PATH, params={"as": "anthropic"})).status_code == 400
