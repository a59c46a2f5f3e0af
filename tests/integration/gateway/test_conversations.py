"""Requests with X-Conversation-Id: they survive their client, and one displaces the other."""

import asyncio

import httpx
import pytest

from schemas import subjects
from schemas.events import Cancelled, Finished
from services.bus.connection import Bus
from services.bus.kv import Bucket
from tests.support.gateway import Gateway, healthy, running_gateway, streamed_text
from tests.support.logs import ended
from tests.support.scripted_engine import ScriptedEngine

CHAT = "/v1/chat/completions"
WHOLE = {"messages": [{"role": "user", "content": "hi"}]}
STREAM = {**WHOLE, "stream": True}
TEXT = "Hello world!"


def conversation(name: str, **others: str) -> httpx.Headers:
    headers = {"X-Conversation-Id": name, **others}
    return httpx.Headers({name: value.encode() for name, value in headers.items()})


async def replay(gateway: Gateway, name: str) -> httpx.Response:
    return await gateway.client.get("/v1/stream", params={"conv_id": name})


async def shown(bus: Bus, name: str, generation_id: str) -> None:
    """Return when the conversation shows that generation."""
    seen = asyncio.Event()

    def on_change(_key: str, value: bytes | None) -> None:
        if value is not None and generation_id.encode() in value:
            seen.set()

    bucket = Bucket(bus, subjects.CONVERSATIONS_BUCKET)
    watch = await bucket.watch(on_change, subjects.conversation_key("", name))
    await asyncio.wait_for(seen.wait(), 5)
    await watch.stop()


@pytest.mark.parametrize("is_running", [False, True])
async def test_a_stream_goes_on_without_its_client(
    bus: Bus, engine: ScriptedEngine, gateway: Gateway, is_running: bool
) -> None:
    engine.gates.may_go_on.clear()
    if not is_running:
        engine.gates.may_start.clear()
    asking = asyncio.create_task(gateway.client.post(CHAT, json=STREAM, headers=conversation("c1")))
    generation_id = await asyncio.wait_for(engine.taken.get(), 5)
    if is_running:
        await engine.gates.started_event(generation_id).wait()
    await shown(bus, "c1", generation_id)
    asking.cancel()
    replaying = asyncio.create_task(replay(gateway, "c1"))
    engine.gates.open()
    assert isinstance((await ended(bus, generation_id)).end, Finished)
    assert streamed_text((await replaying).text) == TEXT
    assert generation_id not in engine.pokes


async def test_a_whole_answer_does_not(bus: Bus, engine: ScriptedEngine, gateway: Gateway) -> None:
    engine.gates.may_start.clear()
    asking = asyncio.create_task(gateway.client.post(CHAT, json=WHOLE, headers=conversation("c2")))
    generation_id = await asyncio.wait_for(engine.taken.get(), 5)
    asking.cancel()
    assert isinstance((await ended(bus, generation_id)).end, Cancelled)


async def test_a_new_request_replaces_the_old_one(
    bus: Bus, engine: ScriptedEngine, gateway: Gateway
) -> None:
    engine.gates.may_go_on.clear()
    headers = conversation("größe")
    first = asyncio.create_task(gateway.client.post(CHAT, json=STREAM, headers=headers))
    first_id = await asyncio.wait_for(engine.taken.get(), 5)
    await engine.gates.started_event(first_id).wait()
    second = asyncio.create_task(gateway.client.post(CHAT, json=STREAM, headers=headers))
    old = await ended(bus, first_id)
    assert isinstance(old.end, Cancelled)
    assert old.end.reason == "replaced"
    second_id = await asyncio.wait_for(engine.taken.get(), 5)
    engine.gates.open()
    assert (await first).status_code == 200
    answer = (await second).text
    new = await ended(bus, second_id)
    assert new.requested is not None
    assert new.requested.replaces == first_id
    assert new.requested.conversation == "größe"
    assert (await replay(gateway, "größe")).text == answer


async def test_many_at_once_leave_one(bus: Bus, engine: ScriptedEngine, gateway: Gateway) -> None:
    engine.gates.may_start.clear()
    headers = conversation("busy")
    asked = [
        asyncio.create_task(gateway.client.post(CHAT, json=STREAM, headers=headers))
        for _ in range(4)
    ]
    generation_ids = [await asyncio.wait_for(engine.taken.get(), 5) for _ in asked]
    await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
    done: set[asyncio.Task[httpx.Response]] = set()
    while len(done) < 3:
        done, _ = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED, timeout=5)
    engine.gates.open()
    answers = await asyncio.gather(*asked)
    assert sorted(answer.status_code for answer in answers) == [200, 400, 400, 400]
    ends = [(await ended(bus, generation_id)).end for generation_id in generation_ids]
    assert sum(isinstance(end, Finished) for end in ends) == 1
    assert streamed_text((await replay(gateway, "busy")).text) == TEXT


async def test_another_caller_sees_nothing(
    bus: Bus, engine: ScriptedEngine, gateway: Gateway
) -> None:
    async with running_gateway(bus, gateway.model_key, api_keys=("k1", "k2")) as locked:
        await healthy(locked)
        mine, yours = {"X-Api-Key": "k1"}, {"X-Api-Key": "k2"}
        headers = conversation("secret", **mine)
        answer = await locked.client.post(CHAT, json=STREAM, headers=headers)
        assert streamed_text(answer.text) == TEXT
        params = {"conv_id": "secret"}
        for headers, status in ((mine, 200), (yours, 404), ({}, 401)):
            seen = await locked.client.get("/v1/stream", params=params, headers=headers)
            assert seen.status_code == status


async def test_an_endless_id_is_refused(engine: ScriptedEngine, gateway: Gateway) -> None:
    response = await gateway.client.post(CHAT, json=STREAM, headers=conversation("x" * 2000))
    assert response.status_code == 400
