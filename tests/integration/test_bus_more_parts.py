"""Hedged questions, open tasks and the store's gauge, on a real nats-server."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from schemas import rpc, subjects
from schemas.errors import RequestError
from schemas.generation import Generation
from schemas.tasks import Task
from services.bus.config import BusSettings
from services.bus.connection import Bus, Subscription, connect, unsubscribe
from services.bus.errors import KeyConflict, NoResponder, RpcTimeout, StoreFull
from services.bus.hedge import ask_any
from services.bus.kv import Bucket
from services.bus.log import LogWriter
from services.bus.open_tasks import open_tasks, remove_task
from services.bus.rpc import serve
from services.bus.store import StoreGauge
from services.bus.task_queue import TaskQueue
from services.bus.tasks import publish_task
from services.bus.topology import ensure_topology
from services.cli.broker import start_broker
from tests.support import events

ONE, EVERY = "rpc.hedged", "rpc.hedged.all"
QUESTION = rpc.Detokenize(ids=(1,))


class Servers:
    """Servers of one queue group; which one gets a question is the broker's choice."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._all: list[Subscription] = []
        self.n_asked = 0
        self.asked = asyncio.Event()

    async def add(self, *, delay_s: float = 0.0, refusal: str = "") -> None:
        async def answer(_question: rpc.EngineQuestion) -> rpc.Detokenized:
            self.n_asked += 1
            self.asked.set()
            await asyncio.sleep(delay_s)
            if refusal:
                raise RequestError.invalid(refusal)
            return rpc.Detokenized(content=f"after {delay_s:g}")

        for subject, queue in ((ONE, "engines"), (EVERY, "")):
            served = await serve(self._bus, subject, rpc.EngineQuestion, answer, queue=queue)
            self._all.append(served)
        await self._bus.flush()

    async def stop(self) -> None:
        for subscription in self._all:
            await unsubscribe(subscription)


@pytest.fixture
async def servers(bus: Bus) -> AsyncIterator[Servers]:
    made = Servers(bus)
    yield made
    await made.stop()


async def ask_them(bus: Bus, timeout_s: float = 5.0) -> str:
    found = await ask_any(
        bus, ONE, EVERY, QUESTION, rpc.Detokenized, timeout_s=timeout_s, hedge_s=0.05
    )
    return found.content


async def test_a_dead_server_costs_a_moment(bus: Bus, servers: Servers) -> None:
    await servers.add(delay_s=60)
    await servers.add()
    began = time.monotonic()
    answers = [await ask_them(bus) for _ in range(5)]
    assert answers == ["after 0"] * 5
    assert time.monotonic() - began < 3


async def test_a_slow_server_is_asked_again_and_its_first_answer_counts(
    bus: Bus, servers: Servers
) -> None:
    await servers.add(delay_s=0.3)
    assert await ask_them(bus) == "after 0.3"
    assert 2 <= servers.n_asked <= 4


async def test_a_refusal_is_an_answer(bus: Bus, servers: Servers) -> None:
    await servers.add(refusal="no")
    with pytest.raises(RequestError, match="no"):
        await ask_them(bus)
    assert servers.n_asked == 1


async def test_nobody_there_is_known_at_once(bus: Bus) -> None:
    with pytest.raises(NoResponder):
        await asyncio.wait_for(ask_them(bus, 60), 2)


async def test_a_dying_server_and_nobody_after_it(bus: Bus, servers: Servers) -> None:
    await servers.add(delay_s=60)
    with pytest.raises(RpcTimeout):
        await ask_them(bus, 0.3)


async def test_one_that_left_without_an_answer_is_not_waited_for_long(
    bus: Bus, servers: Servers
) -> None:
    await servers.add(delay_s=60)
    asking = asyncio.create_task(ask_them(bus, 60))
    async with asyncio.timeout(5):
        await servers.asked.wait()
    await servers.stop()
    async with asyncio.timeout(5):
        with pytest.raises(NoResponder):
            await asking


async def test_one_that_leaves_may_still_answer(bus: Bus, servers: Servers) -> None:
    await servers.add(delay_s=0.1)
    asking = asyncio.create_task(ask_them(bus))
    async with asyncio.timeout(5):
        await servers.asked.wait()
    await servers.stop()
    assert await asking == "after 0.1"


async def test_open_tasks_are_those_that_nobody_acknowledged(bus: Bus) -> None:
    key = subjects.model_key("open tasks")
    first, second = (Task(generation_id=events.new_id(), deadline_at_ms=n) for n in (1, 2))
    await publish_task(bus, key, first)
    await publish_task(bus, key, second, ordinal=3)
    ours = [found for found in await open_tasks(bus) if found.model_key == key]
    assert [found.task for found in ours] == [first, second]
    queue = TaskQueue(bus, key)
    await queue.start()
    (delivery,) = await queue.fetch(1)
    assert len([f for f in await open_tasks(bus) if f.model_key == key]) == 2, "not acknowledged"
    await delivery.ack()
    await remove_task(bus, ours[1].seq)
    await remove_task(bus, ours[1].seq)
    await bus.flush()
    assert [f for f in await open_tasks(bus) if f.model_key == key] == []


async def test_the_gauge_rises_before_the_store_is_full(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    broker = start_broker(tmp_path_factory.mktemp("small"))
    settings = BusSettings(url=broker.url, token=broker.token)
    bus = await connect(replace(settings, store_max_bytes=200_000), name="small")
    try:
        await ensure_topology(bus)
        assert not await StoreGauge(bus).is_nearly_full()
        n_stored = 0
        while not await StoreGauge(bus).is_nearly_full():
            await _store(bus)
            n_stored += 1
        assert n_stored > 10
        with pytest.raises(StoreFull):
            await _store(bus, 100)
    finally:
        await bus.close()
        broker.stop()


async def _store(bus: Bus, n_logs: int = 1) -> None:
    for _ in range(n_logs):
        generation_id = events.new_id()
        opening = events.requested(generation_id, request=b"x" * 10_000)
        await LogWriter(bus).append(Generation(), generation_id, opening)


async def test_a_key_with_a_life_of_its_own(bus: Bus) -> None:
    """It goes by itself, whoever updates it, and may then be created again."""
    bucket = Bucket(bus, subjects.IDEMPOTENCY_BUCKET)
    key = subjects.idempotency_key("me", events.new_id())
    revision = await bucket.update(key, b"1", 0, ttl_s=1)
    await bucket.update(key, b"2", revision, ttl_s=1)
    async with asyncio.timeout(10):
        while await bucket.get(key) is not None:  # noqa: ASYNC110 (the broker tells nobody)
            await asyncio.sleep(0.05)
        while True:
            try:
                await bucket.create(key, b"3")
                break
            except KeyConflict:  # what marks its end is still there
                await asyncio.sleep(0.1)
    found = await bucket.get(key)
    assert found is not None
    assert found.value == b"3"
