"""A full queue, urgent and other requests, and a caller that floods."""

import asyncio

import httpx
import pytest

from schemas import subjects
from schemas.lanes import BATCH, BUSY, FLOODING, LIGHT
from schemas.tasks import Task
from services.bus.backlog import FRESH_S, Backlog
from services.bus.connection import Bus
from services.bus.open_tasks import open_tasks
from services.bus.task_queue import TaskQueue
from services.bus.tasks import publish_task, queue_depth
from tests.support import events
from tests.support.gateway import Gateway, healthy, running_gateway
from tests.support.scripted_engine import ScriptedEngine

CHAT = "/v1/chat/completions"
BODY = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}


async def lanes_of(bus: Bus, model_key: str) -> dict[str, str]:
    """The queue of every task of that model."""
    return {
        found.task.generation_id: found.subject
        for found in await open_tasks(bus)
        if found.model_key == model_key
    }


async def waiting(bus: Bus, model_key: str, n: int) -> None:
    """Return when so many tasks wait."""
    async with asyncio.timeout(10):
        while await queue_depth(bus, model_key) < n:  # noqa: ASYNC110 (the broker tells nobody)
            await asyncio.sleep(0.02)


@pytest.fixture
async def idle(bus: Bus, engine: ScriptedEngine) -> ScriptedEngine:
    """An engine that prepares, and takes no tasks until it is told to."""
    await engine.stop_taking()
    return engine


async def test_one_too_many_is_refused_at_once(
    bus: Bus, idle: ScriptedEngine, gateway: Gateway
) -> None:
    async with running_gateway(bus, gateway.model_key, max_queue=3) as small:
        await healthy(small)
        asked = [asyncio.create_task(small.client.post(CHAT, json=BODY)) for _ in range(3)]
        await waiting(bus, gateway.model_key, 3)
        n_prepared = len(idle.prepares)
        for path, body in ((CHAT, BODY), ("/v1/messages", BODY), ("/v1/responses", {"input": "x"})):
            refused = await small.client.post(path, json=body)
            assert refused.status_code == 503
            assert int(refused.headers["retry-after"]) >= 1
            assert refused.json()["error"]["type"] == "unavailable_error"
            assert "waiting" in refused.json()["error"]["message"]
            assert (refused.json().get("type") == "error") == (path == "/v1/messages")
        assert len(idle.prepares) == n_prepared, "refused before it is prepared"
        assert len(await lanes_of(bus, gateway.model_key)) == 3
        await idle.take()
        assert {(await each).status_code for each in asked} == {200}
        async with asyncio.timeout(5):
            while (await small.client.post(CHAT, json=BODY)).status_code != 200:  # noqa: ASYNC110
                await asyncio.sleep(FRESH_S)  # nobody tells that there is room


async def test_a_retry_finds_its_answer_though_the_queue_is_full(
    bus: Bus, idle: ScriptedEngine, gateway: Gateway
) -> None:
    headers = {"Idempotency-Key": gateway.model_key}
    async with running_gateway(bus, gateway.model_key, max_queue=1) as small:
        await healthy(small)
        first = asyncio.create_task(small.client.post(CHAT, json=BODY, headers=headers))
        await waiting(bus, gateway.model_key, 1)
        again = asyncio.create_task(small.client.post(CHAT, json=BODY, headers=headers))
        assert (await small.client.post(CHAT, json=BODY)).status_code == 503
        await idle.take()
        assert (await first).content == (await again).content


async def test_interactive_goes_before_batch(
    bus: Bus, idle: ScriptedEngine, gateway: Gateway
) -> None:
    asked: list[asyncio.Task[httpx.Response]] = []
    for extra in ({"priority": "batch"}, {"service_tier": "flex"}, {"priority": "interactive"}):
        asked.append(asyncio.create_task(gateway.client.post(CHAT, json=BODY | extra)))
        await waiting(bus, gateway.model_key, len(asked))
    lanes = list((await lanes_of(bus, gateway.model_key)).values())
    key = gateway.model_key
    batch, light = subjects.tasks(key, lane=BATCH), subjects.tasks(key, lane=LIGHT)
    assert sorted(lanes) == sorted([batch, batch, light])
    await idle.take(1)
    ids = [response.headers["x-generation-id"] for response in await asyncio.gather(*asked)]
    assert [idle.taken.get_nowait() for _ in range(3)] == [ids[2], ids[0], ids[1]]


async def test_a_priority_that_is_none(engine: ScriptedEngine, gateway: Gateway) -> None:
    for extra, headers in (({"priority": "urgent"}, {}), ({}, {"X-Priority": "x"})):
        refused = await gateway.client.post(CHAT, json=BODY | extra, headers=headers)
        assert refused.status_code == 400
        assert "interactive" in refused.json()["error"]["message"]


async def test_a_flood_goes_to_slower_lanes(
    bus: Bus, idle: ScriptedEngine, gateway: Gateway
) -> None:
    async with running_gateway(bus, gateway.model_key, api_keys=("x", "y")) as keyed:
        await healthy(keyed)

        def ask(key: str) -> asyncio.Task[httpx.Response]:
            headers = {"Authorization": f"Bearer {key}"}
            return asyncio.create_task(keyed.client.post(CHAT, json=BODY, headers=headers))

        flood = [ask("x") for _ in range(40)]
        await waiting(bus, gateway.model_key, 40)
        lanes = list((await lanes_of(bus, gateway.model_key)).values())
        key = gateway.model_key
        counts = [lanes.count(subjects.tasks(key, lane=lane)) for lane in (LIGHT, BUSY, FLOODING)]
        assert counts == [4, 28, 8]
        other = ask("y")
        await waiting(bus, gateway.model_key, 41)
        await idle.take(1)
        generation_id = (await other).headers["x-generation-id"]
        order = [idle.taken.get_nowait() for _ in range(idle.taken.qsize())]
        assert order.index(generation_id) < 8, "behind the few that count as anybody's"
        await asyncio.gather(*flood)


async def test_what_is_still_being_prepared_counts(bus: Bus) -> None:
    """However often the broker says that nothing waits there."""
    key = subjects.model_key("coming")
    backlog = Backlog(bus, key, 4)
    assert [await backlog.has_room(LIGHT) for _ in range(4)] == [True] * 4
    for _ in range(3):
        assert not await backlog.has_room(LIGHT)
        await asyncio.sleep(FRESH_S)  # the count is old now
    backlog.has_come(is_sent=False)
    assert await backlog.has_room(LIGHT)
    backlog.close()


async def test_a_backlog_leaves_room_and_is_counted_anew(bus: Bus) -> None:
    key = subjects.model_key("backlog")
    queue = TaskQueue(bus, key)
    await queue.start()
    backlog = Backlog(bus, key, 8)

    async def let_in(lane: int) -> bool:
        has_room = await backlog.has_room(lane)
        if has_room:
            await publish_task(bus, key, Task(generation_id=events.new_id()), lane=lane)
            backlog.has_come(is_sent=True)
        return has_room

    assert [await let_in(BATCH) for _ in range(5)] == [True] * 4 + [False]
    assert [await let_in(FLOODING) for _ in range(3)] == [True] * 2 + [False]
    assert [await let_in(LIGHT) for _ in range(3)] == [True] * 2 + [False]
    for delivery in await queue.fetch(1):
        await delivery.ack()
    async with asyncio.timeout(5):
        while not await let_in(LIGHT):  # noqa: ASYNC110 (the broker tells nobody)
            await asyncio.sleep(FRESH_S)
    assert [await Backlog(bus, key, 0).has_room(LIGHT) for _ in range(3)] == [True] * 3
    backlog.close()
    await queue.stop()
