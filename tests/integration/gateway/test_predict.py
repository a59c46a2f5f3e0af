"""Google Cloud's prediction route over a gateway."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from schemas import ids, subjects
from services.bus.connection import Bus
from services.gateway.predict import camel_case
from tests.support.gateway import Gateway, healthy, running_gateway
from tests.support.scripted_engine import ScriptedEngine

CHAT: dict[str, Any] = {
    "@requestFormat": "chatCompletions",
    "messages": [{"role": "user", "content": "hi"}],
    "stream": True,
}


@pytest.fixture
async def gateway(bus: Bus) -> AsyncIterator[Gateway]:
    key = subjects.model_key(ids.new_generation_id())
    routes = {"predict_route": "/predict", "predict_health_route": "/alive", "api_prefix": "/base"}
    async with running_gateway(bus, key, **routes) as running:
        yield running._replace(client=_below(running))


def _below(running: Gateway) -> Any:
    running.client.base_url = f"{running.url}/base"
    return running.client


async def predict(gateway: Gateway, *instances: object) -> list[Any]:
    answer = await gateway.client.post("/predict", json={"instances": list(instances)})
    assert answer.status_code == 200, answer.text
    return answer.json()["predictions"]


async def test_every_instance_is_answered_in_its_place(
    engine: ScriptedEngine, gateway: Gateway
) -> None:
    completion = {"@requestFormat": "/completion", "prompt": "hi"}
    health = {"@requestFormat": "health"}
    chat, native, alive = await predict(gateway, CHAT, completion, health)
    assert chat["choices"][0]["message"]["content"] == "Hello world!"
    assert native["content"] == "Hello world!"
    assert alive == {"status": "ok"}


@pytest.mark.parametrize(
    "instance",
    [5, {}, {"@requestFormat": 5}, {"@requestFormat": "nope"}, {"@requestFormat": "completion"}],
)
async def test_a_bad_instance_is_an_error_in_its_place(
    engine: ScriptedEngine, gateway: Gateway, instance: object
) -> None:
    bad, good = await predict(gateway, instance, CHAT)
    assert bad["error"]["type"] == "invalid_request_error"
    assert "choices" in good


@pytest.mark.parametrize("body", [{}, {"instances": 5}, {"instances": [CHAT] * 129}])
async def test_a_bad_request_is_refused(
    engine: ScriptedEngine, gateway: Gateway, body: dict[str, object]
) -> None:
    assert (await gateway.client.post("/predict", json=body)).status_code == 400


async def test_its_own_health_route(engine: ScriptedEngine, gateway: Gateway) -> None:
    assert (await gateway.client.get("/alive")).json() == {"status": "ok"}


async def test_elsewhere_there_is_no_such_route(
    bus: Bus, engine: ScriptedEngine, gateway: Gateway
) -> None:
    async with running_gateway(bus, gateway.model_key) as plain:
        await healthy(plain)
        assert (await plain.client.post("/predict", json={"instances": []})).status_code == 404


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/v1/chat/completions", "chatCompletions"),
        ("/apply-template", "applyTemplate"),
        ("/completion", "completion"),
        ("/v1/messages/count_tokens", "messagesCountTokens"),
    ],
)
def test_names_in_camel_case(path: str, name: str) -> None:
    assert camel_case(path) == name


async def test_a_retry_of_all_instances_is_answered_as_before(
    engine: ScriptedEngine, gateway: Gateway
) -> None:
    other = CHAT | {"messages": [{"role": "user", "content": "ho"}]}
    headers = {"Idempotency-Key": gateway.model_key}
    found = [
        await gateway.client.post("/predict", json={"instances": [CHAT, other]}, headers=headers)
        for _ in range(2)
    ]
    assert found[0].content == found[1].content
    assert engine.taken.qsize() == 2
