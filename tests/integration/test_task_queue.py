"""One engine's queues on a real broker: turns, arrivals while nothing can be taken, a broken connection."""

import asyncio
from itertools import count
from pathlib import Path

import pytest

from schemas import subjects
from schemas.lanes import BATCH, BUSY, FLOODING, LIGHT, SHARED
from schemas.tasks import Task
from services.bus.config import BusSettings
from services.bus.connection import Bus, connect
from services.bus.task_queue import TaskQueue
from services.bus.tasks import Delivery, publish_task, queue_depth
from services.bus.topology import ensure_topology
from services.cli.broker import start_broker
from tests.support import events

_names = count()


@pytest.fixture
def model_key() -> str:
    return subjects.model_key(f"task queue {next(_names)}")


async def started(bus: Bus, model_key: str, ordinal: int | None = None) -> TaskQueue:
    queue = TaskQueue(bus, model_key, ordinal)
    await queue.start()
    return queue


async def put(bus: Bus, model_key: str, lane: int, n: int = 1) -> list[str]:
    ids = [events.new_id() for _ in range(n)]
    for generation_id in ids:
        await publish_task(bus, model_key, Task(generation_id=generation_id), lane=lane)
    return ids


async def take(queue: TaskQueue, n: int) -> list[str]:
    """As an engine with one slot does: one by one, and nothing can be taken in between."""
    taken: list[str] = []
    for _ in range(n):
        (delivery,) = await queue.fetch(1)
        await delivery.ack()
        taken.append(delivery.task.generation_id)
        await queue.pause()
    return taken


async def test_what_waited_is_taken_in_turns(bus: Bus, model_key: str) -> None:
    queue = await started(bus, model_key)
    waiting = {lane: await put(bus, model_key, lane, 16) for lane in SHARED}
    lane_of = {one: lane for lane, ids in waiting.items() for one in ids}
    taken = await take(queue, 64)
    first = [lane_of[one] for one in taken[:16]]
    assert [first.count(lane) for lane in SHARED] == [12, 2, 1, 1]
    assert set(taken) == set(lane_of)
    for lane, ids in waiting.items():
        assert [one for one in taken if lane_of[one] == lane] == ids, "in order within a lane"
    await queue.stop()


async def test_batch_is_not_starved_by_a_flood(bus: Bus, model_key: str) -> None:
    queue = await started(bus, model_key)
    await put(bus, model_key, FLOODING, 40)
    (batch,) = await put(bus, model_key, BATCH)
    assert batch in await take(queue, 17)
    await queue.stop()


@pytest.mark.parametrize("lane", SHARED)
async def test_a_waiting_engine_is_given_a_task_of_any_lane_at_once(
    bus: Bus, model_key: str, lane: int
) -> None:
    queue = await started(bus, model_key, 0)
    for _ in range(3):  # and again, after one was taken
        fetching = asyncio.create_task(queue.fetch(4))
        (expected,) = await put(bus, model_key, lane)
        (delivery,) = await asyncio.wait_for(fetching, 1.0)
        assert delivery.task.generation_id == expected
        await delivery.ack()
    await queue.stop()


async def test_several_slots_are_filled_in_order(bus: Bus, model_key: str) -> None:
    queue = await started(bus, model_key)
    ids = await put(bus, model_key, LIGHT, 6)
    taken: list[Delivery] = []
    while len(taken) < 4:
        taken += await queue.fetch(4 - len(taken))
    assert [d.task.generation_id for d in taken] == ids[:4]
    await queue.stop()


async def test_what_comes_too_many_goes_to_another_engine(bus: Bus, model_key: str) -> None:
    """All lanes are waited for, one slot is free, and a task comes in each."""
    first = await started(bus, model_key)
    fetching = asyncio.create_task(first.fetch(1))
    await asyncio.wait([fetching], timeout=0.2)
    ids = [(await put(bus, model_key, lane))[0] for lane in SHARED]
    (delivery,) = await fetching
    await first.pause()
    second = await started(bus, model_key)
    others: list[Delivery] = []
    async with asyncio.timeout(5):
        while len(others) < 3:
            others += await second.fetch(3)
    found = {d.task.generation_id for d in (delivery, *others)}
    assert found == set(ids)
    await first.stop()
    await second.stop()


async def test_nothing_is_kept_by_one_that_stops(bus: Bus, model_key: str) -> None:
    first = await started(bus, model_key)
    fetching = asyncio.create_task(first.fetch(1))
    await asyncio.wait([fetching], timeout=0.2)
    await first.stop()
    assert await fetching == []
    second = await started(bus, model_key)
    (expected,) = await put(bus, model_key, BUSY)
    (delivery,) = await second.fetch(1)
    assert (delivery.task.generation_id, delivery.n_delivered) == (expected, 1)
    await second.stop()


async def test_depth_counts_what_nobody_has_taken(bus: Bus, model_key: str) -> None:
    queue = await started(bus, model_key, 1)
    for lane in SHARED:
        await put(bus, model_key, lane, 2)
    task = Task(generation_id=events.new_id())
    await publish_task(bus, model_key, task, ordinal=1)
    assert await queue_depth(bus, model_key) == 8
    assert await queue_depth(bus, model_key, [1]) == 9
    await queue.fetch(1)
    assert await queue_depth(bus, model_key, [1]) == 8
    await queue.stop()


async def test_a_restarted_broker_is_asked_again(tmp_path: Path, model_key: str) -> None:
    """What waited at the broker is forgotten there; what comes afterwards is delivered all the same."""
    broker = start_broker(tmp_path)
    bus = await connect(BusSettings(url=broker.url, token=broker.token), name="restarted")
    try:
        await ensure_topology(bus)
        reconnected = asyncio.Event()
        bus.on_reconnect(reconnected.set)
        queue = await started(bus, model_key)
        fetching = asyncio.create_task(queue.fetch(1, 20.0))
        await asyncio.wait([fetching], timeout=0.2)
        broker.stop()
        broker = start_broker(tmp_path, token=broker.token, port=broker.port)
        await asyncio.wait_for(reconnected.wait(), 10)
        (expected,) = await put(bus, model_key, LIGHT)
        (delivery,) = await asyncio.wait_for(fetching, 10)
        assert delivery.task.generation_id == expected
        await queue.stop()
    finally:
        await bus.close()
        broker.stop()
