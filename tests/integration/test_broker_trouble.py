"""The broker restarts, is away, fills up; readers are slow: nothing accepted is lost or doubled."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Iterator

import pytest

from schemas.errors import UNAVAILABLE
from schemas.generation import Generation
from services.bus.jetstream import api
from services.bus.log import LogWriter
from tests.support import events
from tests.support.drill import LONG, Drill, begun, drill, simulated_fleet, text_of
from tests.support.fleet import Fleet
from tests.support.logs import ended
from tests.support.readers import HEADER

STORE_BYTES = 3_000_000
SHORT = {"prompt": "x", "n_predict": 1}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("trouble")
    with simulated_fleet(folder, LLAMATAPE_STORE_MAX_BYTES=str(STORE_BYTES)) as running:
        yield running


@pytest.fixture
async def alone(fleet: Fleet) -> AsyncIterator[Drill]:
    async with drill(fleet, "e0") as made:
        yield made


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_a_restart_is_a_pause(alone: Drill, number: signal.Signals) -> None:
    a_reader = alone.reader()
    asking = alone.ask(a_reader)
    await begun(a_reader)
    (node,) = alone.fleet.nats.nodes
    await asyncio.to_thread(node.kill, number)
    await asyncio.to_thread(node.start)
    answer = await asking
    assert answer.n_resumes == 0, "the client's connection stayed"
    await alone.check(answer, n_attempts=1)
    assert text_of(answer) == await alone.undisturbed()


async def test_an_outage_of_ten_seconds(alone: Drill) -> None:
    """What runs waits and goes on; what comes meanwhile is told to come again, and is not kept
    waiting for that."""
    a_reader = alone.reader()
    asking = alone.ask(a_reader)
    await begun(a_reader)
    (node,) = alone.fleet.nats.nodes
    await asyncio.to_thread(node.kill)
    away_at = time.monotonic()
    refused = await alone.http.post(alone.url("g0", "/completion"), json=LONG)
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
    assert refused.json()["error"]["type"] == UNAVAILABLE
    assert time.monotonic() - away_at < 8
    await asyncio.sleep(10 - (time.monotonic() - away_at))
    await asyncio.to_thread(node.start)
    answer = await asking
    await alone.check(answer)
    assert text_of(answer) == await alone.undisturbed()


# nats-py forgets to close a connection that a dying broker accepted and then left.
@pytest.mark.filterwarnings(
    "ignore:Exception ignored in. <function StreamWriter:pytest.PytestUnraisableExceptionWarning"
)
async def test_reconnect_storms_with_many_readers(alone: Drill) -> None:
    """The broker goes and comes five times under two readers for each of eight answers."""
    firsts = [alone.reader(f"g{n % 2}") for n in range(8)]
    asking = [alone.ask(each, n_predict=400) for each in firsts]
    for a_reader in firsts[:4]:
        await begun(a_reader, 500)
    seconds = [alone.reader("s0", each.answer.conversation) for each in firsts[:4]]
    following = [asyncio.create_task(each.follow()) for each in seconds]
    (node,) = alone.fleet.nats.nodes
    for number in (signal.SIGKILL, signal.SIGTERM) * 2:
        await asyncio.to_thread(node.kill, number)
        await asyncio.to_thread(node.start)
    answers = await asyncio.gather(*asking)
    followed = await asyncio.gather(*following)
    assert [each.body for each in followed] == [each.body for each in answers[:4]]
    for answer in answers:
        await alone.check(answer)


async def test_a_slow_reader_slows_nobody(alone: Drill) -> None:
    """It stops reading; its generation ends in the usual time; later it gets the rest."""
    asking = {"json": LONG | {"n_predict": 200}, "headers": {HEADER: "slow"}}
    async with alone.http.stream("POST", alone.url("g0", "/completion"), **asking) as response:
        chunks = response.aiter_raw()
        whole = await anext(chunks)
        began = time.monotonic()
        await ended(alone.bus, response.headers["x-generation-id"])
        assert time.monotonic() - began < 8
        async for chunk in chunks:
            whole += chunk
    replayed = await alone.http.get(alone.url("s0", "/v1/stream"), params={"conv_id": "slow"})
    assert replayed.content == whole


async def test_a_store_that_fills_up(alone: Drill) -> None:
    """From 85 % on nobody is let in, while what runs goes on; when it is full, what runs waits."""
    a_reader = alone.reader()
    asking = alone.ask(a_reader, n_predict=300)
    await begun(a_reader)
    junk = await fill(alone, 0.9)
    async with asyncio.timeout(10):  # the gateway looks once a second
        refused = await alone.http.post(alone.url("g0", "/completion"), json=SHORT)
        while refused.status_code == 200:
            refused = await alone.http.post(alone.url("g0", "/completion"), json=SHORT)
    assert refused.status_code == 503
    assert "nearly full" in refused.json()["error"]["message"]
    assert int(refused.headers["retry-after"]) > 1
    junk += await fill(alone, 1.0)
    waiting_at = len(a_reader.answer.body)
    await until_logged(alone, "action=append_waits")
    assert not asking.done(), f"it went on from {waiting_at} bytes"
    for generation_id in junk:
        await api(alone.bus, "STREAM.PURGE.GENERATIONS", {"filter": f"gen.{generation_id}"})
    answer = await asking
    await alone.check(answer, n_attempts=1)
    assert text_of(answer) == await alone.undisturbed(n_predict=300)


async def fill(alone: Drill, part: float) -> list[str]:
    """Store logs of others until so much of the store is used; their ids."""
    ids: list[str] = []
    writer = LogWriter(alone.bus)
    while True:
        info = await api(alone.bus, "STREAM.INFO.GENERATIONS")
        n_left = int(STORE_BYTES * part) - int(info["state"]["bytes"])
        if n_left < 1000:
            return ids
        ids.append(events.new_id())
        request = b"x" * min(200_000, n_left - 700)
        await writer.append(Generation(), ids[-1], events.requested(ids[-1], request=request))


async def until_logged(alone: Drill, text: str) -> None:
    async with asyncio.timeout(20):
        while text not in alone.fleet["e0"].stderr():  # noqa: ASYNC110
            await asyncio.sleep(0.05)
