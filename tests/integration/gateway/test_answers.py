"""Requests from the socket to the log and back."""

import asyncio
import json

import pytest

from schemas.errors import EXCEED_CONTEXT_SIZE, UNAVAILABLE, Problem
from schemas.events import Cancelled, Event, Failed, Finished
from schemas.generation import Generation
from services.bus.connection import Bus
from services.bus.log import LogWriter
from tests.support.gateway import Gateway, frames_of, healthy, running_gateway, streamed_text
from tests.support.logs import ended
from tests.support.scripted_engine import ScriptedEngine

MESSAGES = [{"role": "user", "content": "hi"}]
CHAT = "/v1/chat/completions"
TEXT = "Hello world!"
GENERATING = [
    ("/completion", {"prompt": "hi"}),
    ("/completions", {"prompt": "hi"}),
    ("/v1/completions", {"prompt": "hi"}),
    ("/chat/completions", {"messages": MESSAGES}),
    (CHAT, {"messages": MESSAGES}),
    ("/v1/messages", {"messages": MESSAGES}),
]


@pytest.mark.parametrize(("path", "body"), GENERATING)
async def test_a_whole_answer(
    engine: ScriptedEngine, gateway: Gateway, path: str, body: dict[str, object]
) -> None:
    response = await gateway.client.post(path, json=body)
    assert response.status_code == 200, response.text
    assert TEXT in response.text
    assert response.headers["content-type"] == "application/json; charset=utf-8"
    assert engine.prepares[-1].kind == ("chat" if "messages" in body else "completion")


@pytest.mark.parametrize(("path", "body"), GENERATING)
async def test_a_streamed_answer(
    engine: ScriptedEngine, gateway: Gateway, path: str, body: dict[str, object]
) -> None:
    response = await gateway.client.post(path, json={**body, "stream": True})
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "text/event-stream"
    is_openai = path not in ("/completion", "/completions", "/v1/messages")
    assert (frames_of(response.text)[-1] == "[DONE]") == is_openai
    assert streamed_text(response.text) == TEXT


async def test_what_the_log_remembers(bus: Bus, engine: ScriptedEngine, gateway: Gateway) -> None:
    body = {"messages": MESSAGES, "model": "gpt-9", "max_tokens": 7}
    response = await gateway.client.post(CHAT, json=body)
    state = await ended(bus, response.headers["x-generation-id"])
    requested = state.requested
    assert isinstance(state.end, Finished)
    assert requested is not None
    assert json.loads(requested.request) == body
    assert (requested.model, requested.caller, requested.conversation) == ("tiny", "", None)
    assert requested.fingerprint == "b1-scripted"
    assert requested.params.limits.n_predict == 7
    assert requested.deadline_at_ms - requested.created_at_ms == 3_600_000
    assert response.json()["model"] == "tiny"
    prepare = engine.prepares[-1]
    assert json.loads(prepare.body)["max_tokens"] == 7
    assert prepare.created_at_ms == requested.created_at_ms


async def test_several_choices(engine: ScriptedEngine, gateway: Gateway) -> None:
    response = await gateway.client.post(CHAT, json={"messages": MESSAGES, "n": 2})
    choices = response.json()["choices"]
    assert [choice["message"]["content"] for choice in choices] == [TEXT, TEXT]


async def test_eight_at_once(engine: ScriptedEngine, gateway: Gateway) -> None:
    body = {"messages": MESSAGES, "stream": True}
    answers = await asyncio.gather(*[gateway.client.post(CHAT, json=body) for _ in range(8)])
    assert [streamed_text(answer.text) for answer in answers] == [TEXT] * 8
    assert len({answer.headers["x-generation-id"] for answer in answers}) == 8


@pytest.mark.parametrize("is_stream", [False, True])
async def test_what_the_engine_refuses_is_the_clients_error(
    engine: ScriptedEngine, gateway: Gateway, is_stream: bool
) -> None:
    engine.script.refusal = Problem(
        code=EXCEED_CONTEXT_SIZE, message="too long", n_prompt_tokens=300, n_ctx=256
    )
    response = await gateway.client.post(CHAT, json={"messages": MESSAGES, "stream": is_stream})
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["type"] == "exceed_context_size_error"
    assert (error["n_prompt_tokens"], error["n_ctx"]) == (300, 256)
    assert engine.taken.empty()


@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_failure_before_the_start_has_its_own_status(
    engine: ScriptedEngine, gateway: Gateway, is_stream: bool
) -> None:
    engine.script.failure = Problem(code=UNAVAILABLE, message="no", retry_after_s=2)
    response = await gateway.client.post(CHAT, json={"messages": MESSAGES, "stream": is_stream})
    assert (response.status_code, response.headers["retry-after"]) == (503, "2")
    assert response.json()["error"]["message"] == "no"


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("is_running", [False, True])
async def test_a_client_that_hangs_up_cancels(
    bus: Bus, engine: ScriptedEngine, gateway: Gateway, is_stream: bool, is_running: bool
) -> None:
    """Streamed or not, in the queue or while it generates."""
    engine.gates.may_go_on.clear()
    if not is_running:
        engine.gates.may_start.clear()
    body = {"messages": MESSAGES, "stream": is_stream}
    asking = asyncio.create_task(gateway.client.post(CHAT, json=body))
    generation_id = await asyncio.wait_for(engine.taken.get(), 5)
    if is_running:
        await engine.gates.started_event(generation_id).wait()
    asking.cancel()
    state = await ended(bus, generation_id)
    assert isinstance(state.end, Cancelled)
    assert (state.end.by, state.end.reason) == ("gateway", "client_gone")
    await asyncio.wait_for(engine.gates.ended_event(generation_id).wait(), 5)


class Overtaken(LogWriter):
    """A writer that stands still before it opens a log, until an engine has given up on it."""

    async def append(self, state: Generation, generation_id: str, *events: Event) -> Generation:
        if state.last_seq == 0:
            failed = Failed(problem=Problem(code=UNAVAILABLE, message="too late"), by="engine")
            await super().append(state, generation_id, failed)
        return await super().append(state, generation_id, *events)


@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_log_that_an_engine_closed_first_is_the_answer(
    bus: Bus, engine: ScriptedEngine, gateway: Gateway, is_stream: bool
) -> None:
    key = gateway.model_key
    async with running_gateway(bus, key, writer=Overtaken(bus)) as slow:
        await healthy(slow)
        body = {"messages": MESSAGES, "stream": is_stream}
        response = await slow.client.post(CHAT, json=body)
        assert response.status_code == 503
        assert response.json()["error"]["message"] == "too late"


async def test_a_deadline_ends_what_is_queued(
    bus: Bus, engine: ScriptedEngine, gateway: Gateway
) -> None:
    engine.gates.may_start.clear()
    async with running_gateway(bus, gateway.model_key, deadline_s=0.1) as impatient:
        await healthy(impatient)
        response = await impatient.client.post(CHAT, json={"messages": MESSAGES})
        assert response.status_code == 503
        assert response.json()["error"]["type"] == "unavailable_error"
