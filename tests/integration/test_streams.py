"""The read side on a real nats-server: replays, restarts, many readers, the routes over sockets."""

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from schemas.events import Cancelled, ChoiceEnd, Event, Failed, Finished, Timings, Usage
from schemas.generation import Generation
from schemas.params import Output, Params
from schemas.tasks import ConversationEntry
from services.bus.config import BusSettings
from services.bus.connection import Bus, connect
from services.bus.log import LogWriter, read_generation
from services.bus.tasks import on_poke
from services.bus.topology import ensure_topology
from services.cli.broker import start_broker
from services.cli.http import serving
from services.streams.bootstrap import create_app, create_conversations, create_hub, create_router
from services.streams.config import StreamsSettings
from services.streams.hub import Hub
from services.streams.logs import BusLogs
from services.streams.tape import render
from tests.support import events

SETTINGS = StreamsSettings(silence_s=0.3, api_keys=())
N_TOKENS = 200
NEVER_MS = 2**52


def resumable(generation_id: str, conversation: str = "talk", **changes: object) -> Event:
    params = Params(output=Output(stream=True, include_usage=True))
    fields: dict[str, object] = {"params": params, "deadline_at_ms": NEVER_MS, **changes}
    return events.requested(generation_id, conversation=conversation, **fields)


def finish(n_tokens: int) -> tuple[Event, Event]:
    end = ChoiceEnd(
        choice=0, stop_type="eos", n_predicted=n_tokens + 1, n_prompt=3, timings=Timings()
    )
    last = events.token(n_tokens, "!")
    tokens = type(last)(index=last.index, ids=last.ids, texts=last.texts, end=end)
    return tokens, Finished(
        usage=Usage(n_prompt=3, n_predicted=n_tokens + 1), at_ms=1_700_000_009_000
    )


class Engine:
    """Writes one log as an engine does."""

    def __init__(self, bus: Bus, conversation: str = "talk", **changes: object) -> None:
        self.generation_id = events.new_id()
        self._writer = LogWriter(bus)
        self._first = resumable(self.generation_id, conversation, **changes)
        self._state = Generation()
        self._n = 0

    async def append(self, *written: Event) -> None:
        self._state = await self._writer.append(self._state, self.generation_id, *written)

    async def start(self) -> None:
        await self.append(self._first)
        await self.append(events.claimed())
        await self.append(events.started())

    async def generate(self, n: int) -> None:
        for index in range(self._n, self._n + n):
            await self.append(events.token(index, f" {index}"))
        self._n += n

    async def finish(self) -> None:
        await self.append(*finish(self._n))

    async def run(self, n: int = N_TOKENS) -> None:
        await self.start()
        await self.generate(n)
        await self.finish()


async def rendered(bus: Bus, generation_id: str) -> bytes:
    entries = await BusLogs(bus, silence_s=1).read(generation_id)
    return render(generation_id, entries).cut(0)


async def read(hub: Hub, generation_id: str, from_byte: int = 0, after_frame: int = 0) -> bytes:
    with await hub.open(generation_id) as tape:
        reader = tape.read(from_byte, after_frame)
    return b"".join([chunk async for chunk in reader])


@pytest.fixture
async def hub(bus: Bus) -> AsyncIterator[Hub]:
    hub = create_hub(bus, SETTINGS)
    yield hub
    await hub.close()


async def test_readers_from_any_offset_see_the_same_rest(bus: Bus, hub: Hub) -> None:
    engine = Engine(bus)
    await engine.start()
    await engine.generate(20)
    offsets = [0, 1, 777, 5_000, 20_000, 10**9]
    live = [asyncio.create_task(read(hub, engine.generation_id, each)) for each in offsets]
    await engine.generate(N_TOKENS)
    await engine.finish()
    whole = await rendered(bus, engine.generation_id)
    assert whole.endswith(b"data: [DONE]\n\n")
    assert [await task for task in live] == [whole[each:] for each in offsets]
    replay = await read(hub, engine.generation_id, after_frame=10)
    assert replay == whole[whole.index(b"id: 11\n") :]


async def test_another_process_renders_the_same_bytes(bus: Bus, bus_settings: BusSettings) -> None:
    engine = Engine(bus)
    await engine.run()
    whole = await rendered(bus, engine.generation_id)
    async with connected(bus_settings) as (_, other):
        assert await read(other, engine.generation_id) == whole


async def test_two_hundred_readers_share_one_subscription(bus: Bus, hub: Hub) -> None:
    engine = Engine(bus)
    await engine.start()
    await rendered(bus, engine.generation_id)  # the reader of histories has its own inbox
    n_before = len(bus.nc._subs)
    readers = [asyncio.create_task(read(hub, engine.generation_id)) for _ in range(200)]
    await engine.generate(N_TOKENS)
    assert len(bus.nc._subs) == n_before + 1
    await engine.finish()
    assert set(await asyncio.gather(*readers)) == {await rendered(bus, engine.generation_id)}
    await hub.close()
    assert len(bus.nc._subs) == n_before


async def test_a_new_generation_is_followed_before_its_log_exists(bus: Bus, hub: Hub) -> None:
    engine = Engine(bus)
    first = engine._first
    tape = await hub.open(engine.generation_id, is_new=True, requested=first)  # type: ignore[arg-type]
    with tape:
        reading = asyncio.create_task(read(hub, engine.generation_id))
        await engine.run(5)
        await tape.wait_done()
        assert await reading == await rendered(bus, engine.generation_id)
        assert tape.generation == await read_generation(bus, engine.generation_id)


class Restartable:
    """A broker that can be killed and started again on its store."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)
        self._broker = start_broker(self._folder)
        self.settings = BusSettings(url=self._broker.url, token=self._broker.token)

    def restart(self) -> None:
        self.kill()
        token, port = self._broker.token, self._broker.port
        self._broker = start_broker(self._folder, token=token, port=port)

    def kill(self) -> None:
        os.kill(self._broker.pid, signal.SIGKILL)
        self._broker.process.wait()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Restartable]:
    broker = Restartable(tmp_path)
    yield broker
    broker.kill()


@asynccontextmanager
async def connected(settings: BusSettings) -> AsyncIterator[tuple[Bus, Hub]]:
    """A process of its own, as far as the broker can tell."""
    bus = await connect(settings, name="process")
    await ensure_topology(bus)
    hub = create_hub(bus, SETTINGS)
    yield bus, hub
    await hub.close()
    await bus.close()


async def test_streams_survive_restarts_of_the_broker(broker: Restartable) -> None:
    async with connected(broker.settings) as (bus, hub):
        engine = Engine(bus)
        await engine.start()
        live = asyncio.create_task(read(hub, engine.generation_id))
        await engine.generate(20)
        broker.restart()
        await engine.generate(20)
        await engine.finish()
        whole = await live
    broker.restart()
    async with connected(broker.settings) as (bus, hub):
        assert await read(hub, engine.generation_id) == whole
        assert await read(hub, engine.generation_id, 1234) == whole[1234:]
        assert await rendered(bus, engine.generation_id) == whole


def entry_of(engine: Engine, conversation: str) -> ConversationEntry:
    return ConversationEntry(
        conversation_id=conversation, generation_id=engine.generation_id, dialect="openai.chat"
    )


async def test_an_end_is_noted_by_who_reads_it_and_found_by_lookup(bus: Bus, hub: Hub) -> None:
    conversations = create_conversations(bus)
    create_router(hub, conversations, LogWriter(bus))
    seen, unseen = Engine(bus, "seen"), Engine(bus, "unseen")
    for engine, name in ((seen, "seen"), (unseen, "unseen")):
        await engine.run(5)
        assert await conversations.swap("", name, entry_of(engine, name)) is None
    whole = await read(hub, seen.generation_id)
    await hub.close()
    noted = await conversations.find("", "seen")
    assert noted is not None
    assert (noted.is_done, noted.n_bytes) == (True, len(whole))
    (repaired,) = await conversations.lookup("", ["unseen"])
    assert (repaired.is_done, repaired.n_bytes) == (
        True,
        len(await rendered(bus, unseen.generation_id)),
    )
    assert repaired.completed_at_s == 1_700_000_009


@asynccontextmanager
async def site(bus: Bus) -> AsyncIterator[httpx.AsyncClient]:
    """The streams service alone, on a socket of its own."""
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    try:
        async with (
            serving(create_app(bus, SETTINGS), [listener]),
            httpx.AsyncClient(base_url=url, timeout=20) as client,
        ):
            yield client
    finally:
        listener.close()


async def test_a_live_stream_over_http(bus: Bus) -> None:
    engine = Engine(bus, "http")
    await engine.start()
    await engine.generate(3)
    await create_conversations(bus).swap("", "http", entry_of(engine, "http"))
    async with site(bus) as client:
        assert (await client.get("/health")).json() == {"status": "ok"}
        async with client.stream("GET", "/v1/stream?conv_id=http") as answer:
            assert answer.headers["content-type"] == "text/event-stream"
            chunks = answer.aiter_raw()
            first = await anext(chunks)
            await engine.generate(3)
            await engine.finish()
            rest = b"".join([chunk async for chunk in chunks])
        whole = await rendered(bus, engine.generation_id)
        assert first + rest == whole
        headers = {"Last-Event-ID": "4"}
        resumed = await client.get("/v1/stream?conv_id=http", headers=headers)
        assert resumed.content == whole[whole.index(b"id: 5\n") :]


async def test_a_queued_generation_answers_when_it_starts(bus: Bus) -> None:
    engine = Engine(bus, "queued")
    await engine.append(engine._first)
    await create_conversations(bus).swap("", "queued", entry_of(engine, "queued"))
    async with site(bus) as client:
        asking = asyncio.create_task(client.get("/v1/stream?conv_id=queued"))
        await engine.append(events.claimed(), events.started())
        await engine.generate(2)
        await engine.finish()
        assert (await asking).content == await rendered(bus, engine.generation_id)


async def test_delete_ends_the_generation_and_its_readers(bus: Bus) -> None:
    engine = Engine(bus, "gone")
    await engine.start()
    await engine.generate(3)
    await create_conversations(bus).swap("", "gone", entry_of(engine, "gone"))
    poked: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    subscription = await on_poke(bus, events.MODEL_KEY, poked.set_result)
    async with site(bus) as client:
        async with client.stream("GET", "/v1/stream?conv_id=gone") as reading:
            chunks = reading.aiter_raw()
            assert b'" 2"' in await anext(chunks)
            assert (await client.delete("/v1/stream?conv_id=gone")).status_code == 204
            assert await poked == engine.generation_id
            assert [chunk async for chunk in chunks] == [], "it just ends, without [DONE]"
        assert (await client.get("/v1/stream?conv_id=gone")).status_code == 404
    end = (await read_generation(bus, engine.generation_id)).end
    assert isinstance(end, Cancelled)
    await subscription.unsubscribe()


async def test_a_reader_past_the_deadline_gets_the_error_in_the_stream(bus: Bus) -> None:
    engine = Engine(bus, "late", deadline_at_ms=1)
    await engine.start()
    await engine.generate(1)
    await create_conversations(bus).swap("", "late", entry_of(engine, "late"))
    async with site(bus) as client:
        answer = await client.get("/v1/stream?conv_id=late")
        assert b'"type":"unavailable_error"' in answer.content
    assert isinstance((await read_generation(bus, engine.generation_id)).end, Failed)
