"""Idempotency-Key: one generation however often and wherever it is asked for."""

import asyncio

import httpx
import msgspec
import pytest

from schemas import codec, ids, subjects
from schemas.errors import SERVER, UNAVAILABLE, Problem
from schemas.events import Failed, Finished
from schemas.generation import Generation
from schemas.tasks import IdempotentRequest, Task
from services.bus.connection import Bus
from services.bus.kv import Bucket
from services.bus.log import LogWriter
from services.bus.tasks import publish_task
from tests.support.gateway import Gateway, healthy, running_gateway, streamed_text
from tests.support.logs import ended
from tests.support.scripted_engine import ScriptedEngine

CHAT = "/v1/chat/completions"
HI = [{"role": "user", "content": "hi"}]
TEXT = "Hello world!"
ROUTES = {
    CHAT: {"messages": HI},
    "/chat/completions": {"messages": HI},
    "/v1/completions": {"prompt": "x"},
    "/completion": {"prompt": "x"},
    "/v1/messages": {"messages": HI, "max_tokens": 9},
    "/v1/responses": {"input": "hi"},
}
MISMATCH = "only be used with the same request"


async def ask(gateway: Gateway, key: str, path: str = CHAT, **body: object) -> httpx.Response:
    headers = {"Idempotency-Key": own(gateway, key)}
    return await gateway.client.post(path, json=ROUTES[path] | body, headers=headers)


def own(gateway: Gateway, key: str) -> str:
    """Tests share a broker, and nobody has to say who is asking."""
    return f"{gateway.model_key} {key}"


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_retry_gets_the_same_bytes(
    engine: ScriptedEngine, gateway: Gateway, path: str, stream: bool
) -> None:
    first = await ask(gateway, "k", path, stream=stream)
    again = await ask(gateway, "k", path, stream=stream)
    assert first.status_code == again.status_code == 200
    assert first.content == again.content
    assert first.headers["content-type"] == again.headers["content-type"]
    assert first.headers["x-generation-id"] == again.headers["x-generation-id"]
    assert "idempotent-replayed" not in first.headers
    assert again.headers["idempotent-replayed"] == "true"
    assert engine.taken.qsize() == 1
    other = await ask(gateway, "k2", path, stream=stream)
    assert other.headers["x-generation-id"] != first.headers["x-generation-id"]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_retry_joins_what_still_runs(
    engine: ScriptedEngine, gateway: Gateway, stream: bool
) -> None:
    engine.gates.may_go_on.clear()
    first = asyncio.create_task(ask(gateway, "k", stream=stream))
    generation_id = await asyncio.wait_for(engine.taken.get(), 5)
    await engine.gates.started_event(generation_id).wait()
    again = asyncio.create_task(ask(gateway, "k", stream=stream))
    engine.gates.open()
    assert (await first).content == (await again).content
    assert engine.taken.empty()


@pytest.mark.parametrize("stream", [False, True])
async def test_it_goes_on_without_its_client(
    bus: Bus, engine: ScriptedEngine, gateway: Gateway, stream: bool
) -> None:
    engine.gates.may_go_on.clear()
    first = asyncio.create_task(ask(gateway, "k", stream=stream))
    generation_id = await asyncio.wait_for(engine.taken.get(), 5)
    await engine.gates.started_event(generation_id).wait()
    first.cancel()
    again = asyncio.create_task(ask(gateway, "k", stream=stream))
    engine.gates.open()
    assert isinstance((await ended(bus, generation_id)).end, Finished)
    found = await again
    assert found.headers["x-generation-id"] == generation_id
    text = streamed_text(found.text) if stream else found.json()["choices"][0]["message"]["content"]
    assert text == TEXT


async def test_many_at_once_on_two_gateways_are_one(
    bus: Bus, engine: ScriptedEngine, gateway: Gateway
) -> None:
    async with running_gateway(bus, gateway.model_key) as second:
        await healthy(second)
        asked = [ask(g, "k", stream=True) for g in (gateway, second) * 8]
        found = await asyncio.gather(*asked)
    assert {response.status_code for response in found} == {200}
    assert len({response.content for response in found}) == 1
    assert len({response.headers["x-generation-id"] for response in found}) == 1
    assert engine.taken.qsize() == 1


@pytest.mark.parametrize("path", ROUTES)
async def test_another_request_under_the_same_key_is_refused(
    engine: ScriptedEngine, gateway: Gateway, path: str
) -> None:
    await ask(gateway, "k", path)
    for change in ({"seed": 5}, {"stream": True}, {"unknown": [1]}):
        refused = await ask(gateway, "k", path, **change)
        assert refused.status_code == 422
        error = refused.json()["error"]
        assert MISMATCH in error["message"]
        assert (error["type"], error["param"]) == ("idempotency_error", "Idempotency-Key")
        assert (refused.json().get("type") == "error") == (path == "/v1/messages")
    assert engine.taken.qsize() == 1


async def test_the_order_of_fields_does_not_matter(
    engine: ScriptedEngine, gateway: Gateway
) -> None:
    bodies = ('{"prompt": "x", "seed": 1}', '{"seed":1,"prompt":"x"}')
    headers = {"Idempotency-Key": own(gateway, "k")}
    found = [
        await gateway.client.post("/completion", content=body, headers=headers) for body in bodies
    ]
    assert found[0].content == found[1].content


async def test_keys_are_the_callers_own(bus: Bus, engine: ScriptedEngine, gateway: Gateway) -> None:
    async with running_gateway(bus, gateway.model_key, api_keys=("a", "b")) as keyed:
        await healthy(keyed)
        found: list[str] = []
        for caller in ("a", "b", "a"):
            headers = {"Idempotency-Key": "k", "Authorization": f"Bearer {caller}"}
            response = await keyed.client.post(CHAT, json={"messages": HI}, headers=headers)
            found.append(response.headers["x-generation-id"])
        assert found[0] == found[2] != found[1]


@pytest.mark.parametrize("key", ["", "x" * 256, "a\tb", "schl\u00fcssel"])
async def test_a_key_that_is_none(engine: ScriptedEngine, gateway: Gateway, key: str) -> None:
    headers = httpx.Headers({"Idempotency-Key": key.encode("latin-1")})  # type: ignore[dict-item]
    refused = await gateway.client.post(CHAT, json={"messages": HI}, headers=headers)
    assert refused.status_code == 400
    assert "Idempotency-Key" in refused.json()["error"]["message"]
    assert engine.taken.empty()


async def test_what_was_refused_may_be_asked_again(
    engine: ScriptedEngine, gateway: Gateway
) -> None:
    """Nothing is kept of a request that an engine refused, not even what it was."""
    engine.script.refusal = Problem(code="invalid_request_error", message="no")
    assert (await ask(gateway, "k")).status_code == 400
    engine.script.refusal = None
    found = await ask(gateway, "k", seed=1)
    assert found.status_code == 200
    assert "idempotent-replayed" not in found.headers


@pytest.mark.parametrize("code", [SERVER, UNAVAILABLE])
async def test_what_failed_is_run_anew(engine: ScriptedEngine, gateway: Gateway, code: str) -> None:
    engine.script.failure = Problem(code=code, message="broken")
    failed = await ask(gateway, "k")
    assert failed.status_code >= 500
    engine.script.failure = None
    found = await ask(gateway, "k")
    assert found.status_code == 200
    assert found.headers["x-generation-id"] != failed.headers["x-generation-id"]
    assert (await ask(gateway, "k")).content == found.content


async def test_a_deleted_answer_is_not_shown(engine: ScriptedEngine, gateway: Gateway) -> None:
    first = (await ask(gateway, "k", "/v1/responses")).json()
    await gateway.client.delete(f"/v1/responses/{first['id']}")
    assert (await ask(gateway, "k", "/v1/responses")).json()["id"] != first["id"]


async def test_after_the_window_the_key_is_free(
    bus: Bus, engine: ScriptedEngine, gateway: Gateway
) -> None:
    async with running_gateway(bus, gateway.model_key, idempotency_window_s=1) as brief:
        await healthy(brief)
        first = (await ask(brief, "k")).headers["x-generation-id"]
        async with asyncio.timeout(10):
            while (await ask(brief, "k")).headers["x-generation-id"] == first:  # noqa: ASYNC110
                await asyncio.sleep(0.05)  # nobody tells that time has passed


@pytest.mark.parametrize("has_task", [False, True])
async def test_a_gateway_that_died_before_it_opened_the_log(
    bus: Bus, engine: ScriptedEngine, gateway: Gateway, has_task: bool
) -> None:
    """It named the generation, and perhaps queued the task; the retry opens that very log."""
    known = await ask(gateway, "other")
    bucket = Bucket(bus, subjects.IDEMPOTENCY_BUCKET)
    stored = await bucket.get(subjects.idempotency_key("", own(gateway, "other")))
    assert stored is not None
    entry = codec.decode(stored.value, IdempotentRequest)
    generation_id = ids.derived_generation_id("dead")
    left = msgspec.structs.replace(entry, generation_id=generation_id)
    await bucket.put(subjects.idempotency_key("", own(gateway, "k")), codec.encode(left))
    if has_task:
        task = Task(generation_id=generation_id, created_at_ms=entry.created_at_ms)
        await publish_task(bus, gateway.model_key, task)
    found = await ask(gateway, "k")
    assert found.headers["x-generation-id"] == generation_id
    assert found.json()["choices"] == known.json()["choices"]


async def test_what_an_engine_gave_up_is_opened_anew(
    bus: Bus, engine: ScriptedEngine, gateway: Gateway
) -> None:
    """The task waited too long for its log, and the engine closed it."""
    first = (await ask(gateway, "k")).headers["x-generation-id"]
    bucket = Bucket(bus, subjects.IDEMPOTENCY_BUCKET)
    key = subjects.idempotency_key("", own(gateway, "k"))
    stored = await bucket.get(key)
    assert stored is not None
    entry = codec.decode(stored.value, IdempotentRequest)
    closed = ids.derived_generation_id("closed")
    failed = Failed(problem=Problem(code=SERVER, message="never completed"), by="engine")
    await LogWriter(bus).append(Generation(), closed, failed)
    await bucket.put(key, codec.encode(msgspec.structs.replace(entry, generation_id=closed)))
    found = await ask(gateway, "k")
    assert found.status_code == 200
    assert found.headers["x-generation-id"] not in (first, closed)


async def test_a_background_response_is_begun_once(
    engine: ScriptedEngine, gateway: Gateway
) -> None:
    found = [
        (await ask(gateway, "k", "/v1/responses", background=True)).json()["id"] for _ in range(2)
    ]
    assert found[0] == found[1]
    assert engine.taken.qsize() == 1
