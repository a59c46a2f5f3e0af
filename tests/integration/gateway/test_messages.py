"""Anthropic's messages over a gateway: what only this dialect does."""

import json

import pytest

from schemas.errors import EXCEED_CONTEXT_SIZE, SERVER, Problem
from services.bus.connection import Bus
from tests.support.gateway import Gateway, healthy, running_gateway
from tests.support.scripted_engine import ScriptedEngine

MESSAGES = "/v1/messages"
COUNT = "/v1/messages/count_tokens"
BODY = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 9}


async def test_a_message(engine: ScriptedEngine, gateway: Gateway) -> None:
    response = await gateway.client.post(MESSAGES, json=BODY)
    message = response.json()
    generation = response.headers["x-generation-id"].replace("-", "")
    assert message["id"] == f"msg_{generation}"
    assert message["content"] == [{"type": "text", "text": "Hello world!"}]
    assert message["stop_reason"] == "end_turn"
    assert set(message["usage"]) == {
        "cache_creation_input_tokens",
        "cache_read_input_tokens",
        "input_tokens",
        "output_tokens",
        "output_tokens_details",
    }


async def test_the_order_of_events(engine: ScriptedEngine, gateway: Gateway) -> None:
    response = await gateway.client.post(MESSAGES, json=BODY | {"stream": True})
    names = [line[7:] for line in response.text.splitlines() if line.startswith("event: ")]
    deltas = ["content_block_delta"] * names.count("content_block_delta")
    assert names == [
        "message_start",
        "ping",
        "content_block_start",
        *deltas,
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]


@pytest.mark.parametrize("path", [COUNT, "/v1/chat/completions/input_tokens"])
async def test_tokens_are_counted(engine: ScriptedEngine, gateway: Gateway, path: str) -> None:
    response = await gateway.client.post(path, json={"messages": BODY["messages"]})
    assert response.status_code == 200, response.text
    assert response.json()["input_tokens"] > 0
    assert ("object" in response.json()) == (path != COUNT)
    assert engine.prepares == []


@pytest.mark.parametrize("path", [MESSAGES, COUNT])
async def test_errors_look_like_anthropics_and_like_llama_servers(
    engine: ScriptedEngine, gateway: Gateway, path: str
) -> None:
    response = await gateway.client.post(path, json={"max_tokens": 5})
    assert response.status_code == 400
    assert response.json() == {
        "type": "error",
        "error": {
            "code": 400,
            "message": "'messages' is required",
            "param": "messages",
            "type": "invalid_request_error",
        },
    }


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_what_fails_before_its_start_is_an_error_too(
    engine: ScriptedEngine, gateway: Gateway, is_streamed: bool
) -> None:
    engine.script.failure = Problem(code=SERVER, message="no")
    response = await gateway.client.post(MESSAGES, json=BODY | {"stream": is_streamed})
    assert response.status_code == 500
    assert response.json()["type"] == "error"


async def test_a_refusal_of_the_engine(engine: ScriptedEngine, gateway: Gateway) -> None:
    engine.script.refusal = Problem(
        code=EXCEED_CONTEXT_SIZE, message="long", n_prompt_tokens=9, n_ctx=5
    )
    response = await gateway.client.post(MESSAGES, json=BODY)
    assert response.status_code == 400
    assert response.json()["error"]["n_ctx"] == 5


async def test_the_key_may_come_in_anthropics_header(
    bus: Bus, engine: ScriptedEngine, gateway: Gateway
) -> None:
    async with running_gateway(bus, gateway.model_key, api_keys=("secret",)) as closed:
        await healthy(closed)
        refused = await closed.client.post(MESSAGES, json=BODY)
        taken = await closed.client.post(MESSAGES, json=BODY, headers={"x-api-key": "secret"})
    assert (refused.status_code, taken.status_code) == (401, 200)


async def test_the_prompt_does_not_change_with_the_billing_header(
    engine: ScriptedEngine, gateway: Gateway
) -> None:
    for cch in ("a5145", "9bc11"):
        system = f"x-anthropic-billing-header: cc_version=2; cch={cch};You are Claude Code."
        await gateway.client.post(MESSAGES, json=BODY | {"system": system})
    first, second = (json.loads(asked.body) for asked in engine.prepares)
    assert first == second
