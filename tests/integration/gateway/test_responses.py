"""The Responses API over a gateway: made, found again, continued, stopped, forgotten."""

import asyncio
import json
from typing import Any

import httpx
import pytest

from services.bus.connection import Bus
from tests.support.gateway import Gateway, healthy, running_gateway, streamed_text
from tests.support.logs import ended
from tests.support.scripted_engine import ScriptedEngine

PATH = "/v1/responses"
TEXT = "Hello world!"
BODY: dict[str, Any] = {"input": "hi", "model": "any"}


def text_of(response: dict[str, Any]) -> str:
    parts = [part for item in response["output"] for part in item["content"]]
    return "".join(part["text"] for part in parts)


def events_of(answer: httpx.Response) -> list[dict[str, Any]]:
    lines = answer.text.splitlines()
    return [json.loads(line[6:]) for line in lines if line.startswith("data: ")]


async def create(gateway: Gateway, **fields: Any) -> dict[str, Any]:
    answer = await gateway.client.post(PATH, json=BODY | fields)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def get(gateway: Gateway, path: str, **query: Any) -> dict[str, Any]:
    answer = await gateway.client.get(f"{PATH}/{path}", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("path", [PATH, "/responses"])
async def test_a_response(engine: ScriptedEngine, gateway: Gateway, path: str) -> None:
    answer = await gateway.client.post(path, json=BODY)
    response = answer.json()
    assert response["id"] == f"resp_{answer.headers['x-generation-id'].replace('-', '')}"
    assert (response["status"], text_of(response)) == ("completed", TEXT)
    assert response["output"][0]["id"].startswith("msg_")
    assert response["usage"]["total_tokens"] == 7


async def test_it_is_found_again_as_it_was(engine: ScriptedEngine, gateway: Gateway) -> None:
    response = await create(gateway, metadata={"topic": "greeting"})
    assert await get(gateway, response["id"]) == response


async def test_its_stream_is_found_again_from_any_event(
    engine: ScriptedEngine, gateway: Gateway
) -> None:
    first = await gateway.client.post(PATH, json=BODY | {"stream": True})
    events = events_of(first)
    assert streamed_text(first.text) == TEXT
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert events[-1]["type"] == "response.completed"
    response_id = events[0]["response"]["id"]
    assert await get(gateway, response_id) == events[-1]["response"]
    for after in (0, 3, len(events) - 2, len(events) - 1, 999):
        query = {"stream": "true", "starting_after": str(after)}
        rest = await gateway.client.get(f"{PATH}/{response_id}", params=query)
        assert events_of(rest) == events[after + 1 :]
    again = await gateway.client.get(f"{PATH}/{response_id}", params={"stream": "true"})
    assert again.content == first.content


async def test_another_gateway_finds_it_too(
    bus: Bus, engine: ScriptedEngine, gateway: Gateway
) -> None:
    response = await create(gateway)
    async with running_gateway(bus, gateway.model_key) as other:
        await healthy(other)
        assert await get(other, response["id"]) == response


async def test_in_the_background_nobody_waits(
    bus: Bus, engine: ScriptedEngine, gateway: Gateway
) -> None:
    engine.gates.may_start.clear()
    engine.gates.may_go_on.clear()
    response = await create(gateway, background=True)
    assert (response["status"], response["output"]) == ("queued", [])
    generation_id = await engine.taken.get()
    engine.gates.may_start.set()
    await engine.gates.started_event(generation_id).wait()
    running = await get(gateway, response["id"])
    while not running["output"]:  # as its clients look
        await asyncio.sleep(0.01)
        running = await get(gateway, response["id"])
    assert (running["status"], text_of(running)) == ("in_progress", "Hello")
    engine.gates.open()
    await ended(bus, generation_id)
    assert text_of(await get(gateway, response["id"])) == TEXT


async def test_a_background_stream_outlives_its_client(
    bus: Bus, engine: ScriptedEngine, gateway: Gateway
) -> None:
    engine.gates.may_go_on.clear()
    body = BODY | {"background": True, "stream": True}
    async with gateway.client.stream("POST", PATH, json=body) as answer:
        generation_id = answer.headers["x-generation-id"]
        await anext(answer.aiter_bytes())
    engine.gates.open()
    await ended(bus, generation_id)
    assert engine.pokes == []
    response = await get(gateway, f"resp_{generation_id.replace('-', '')}")
    assert (response["status"], text_of(response)) == ("completed", TEXT)


async def test_one_that_runs_can_be_cancelled_and_stays_so(
    engine: ScriptedEngine, gateway: Gateway
) -> None:
    engine.gates.may_go_on.clear()
    response = await create(gateway, background=True)
    await engine.gates.started_event(await engine.taken.get()).wait()
    for _ in range(2):
        answer = await gateway.client.post(f"{PATH}/{response['id']}/cancel")
        assert answer.json()["status"] == "cancelled"
    assert engine.pokes
    assert (await get(gateway, response["id"]))["status"] == "cancelled"


async def test_cancelling_what_is_over_changes_nothing(
    engine: ScriptedEngine, gateway: Gateway
) -> None:
    response = await create(gateway)
    answer = await gateway.client.post(f"{PATH}/{response['id']}/cancel")
    assert answer.json() == response


async def test_a_deleted_one_is_not_found(engine: ScriptedEngine, gateway: Gateway) -> None:
    response = await create(gateway)
    path = f"{PATH}/{response['id']}"
    deleted = await gateway.client.delete(path)
    assert deleted.json() == {"id": response["id"], "object": "response", "deleted": True}
    for answer in (
        await gateway.client.get(path),
        await gateway.client.delete(path),
        await gateway.client.post(f"{path}/cancel"),
        await gateway.client.get(f"{path}/input_items"),
        await gateway.client.get(f"/v1/generations/{response['id']}/stream"),
    ):
        assert answer.status_code == 404
    again = await gateway.client.post(PATH, json=BODY | {"previous_response_id": response["id"]})
    assert (again.status_code, again.json()["error"]["param"]) == (400, "previous_response_id")


async def test_deleting_one_that_runs_stops_it(
    bus: Bus, engine: ScriptedEngine, gateway: Gateway
) -> None:
    engine.gates.may_go_on.clear()
    response = await create(gateway, background=True)
    generation_id = await engine.taken.get()
    await engine.gates.started_event(generation_id).wait()
    await gateway.client.delete(f"{PATH}/{response['id']}")
    assert (await ended(bus, generation_id)).end.reason == "deleted"  # type: ignore[union-attr]


async def test_one_that_was_not_to_be_stored_is_not_found(
    engine: ScriptedEngine, gateway: Gateway
) -> None:
    response = await create(gateway, store=False)
    assert (await gateway.client.get(f"{PATH}/{response['id']}")).status_code == 404


@pytest.mark.parametrize("name", ["resp_1", "x", "resp_" + "0" * 32])
async def test_an_unknown_one_is_not_found(
    engine: ScriptedEngine, gateway: Gateway, name: str
) -> None:
    assert (await gateway.client.get(f"{PATH}/{name}")).status_code == 404


async def test_other_generations_are_no_responses(engine: ScriptedEngine, gateway: Gateway) -> None:
    answer = await gateway.client.post("/completion", json={"prompt": "hi"})
    digits = answer.headers["x-generation-id"].replace("-", "")
    assert (await gateway.client.get(f"{PATH}/resp_{digits}")).status_code == 404


async def test_others_do_not_find_it(bus: Bus, engine: ScriptedEngine, gateway: Gateway) -> None:
    mine, yours = ({"Authorization": f"Bearer {key}"} for key in ("mine", "yours"))
    async with running_gateway(bus, gateway.model_key, api_keys=("mine", "yours")) as closed:
        await healthy(closed)
        answer = await closed.client.post(PATH, json=BODY, headers=mine)
        path = f"{PATH}/{answer.json()['id']}"
        assert (await closed.client.get(path, headers=mine)).status_code == 200
        assert (await closed.client.get(path, headers=yours)).status_code == 404
        follow_up = BODY | {"previous_response_id": answer.json()["id"]}
        assert (await closed.client.post(PATH, json=follow_up, headers=yours)).status_code == 400


async def test_a_conversation_goes_on_from_stored_responses(
    engine: ScriptedEngine, gateway: Gateway
) -> None:
    first = await create(gateway, input="one", instructions="Be kind.")
    second = await create(gateway, input="two", previous_response_id=first["id"])
    await create(
        gateway, input="three", previous_response_id=second["id"], instructions="Be brief."
    )
    messages = json.loads(engine.prepares[-1].body)["messages"]
    contents = [
        m["content"] if m["role"] == "system" else m["content"][0]["text"] for m in messages
    ]
    assert list(zip([m["role"] for m in messages], contents, strict=True)) == [
        ("system", "Be brief."),
        ("user", "one"),
        ("assistant", TEXT),
        ("user", "two"),
        ("assistant", TEXT),
        ("user", "three"),
    ]


async def test_one_that_runs_cannot_be_continued(engine: ScriptedEngine, gateway: Gateway) -> None:
    engine.gates.may_go_on.clear()
    response = await create(gateway, background=True)
    answer = await gateway.client.post(PATH, json=BODY | {"previous_response_id": response["id"]})
    assert answer.status_code == 400
    assert "in progress" in answer.json()["error"]["message"]


async def test_input_items(engine: ScriptedEngine, gateway: Gateway) -> None:
    first = await create(gateway, input="one")
    second = await create(gateway, input="two", previous_response_id=first["id"])
    page = await get(gateway, f"{second['id']}/input_items", order="asc")
    texts = [item["content"][0]["text"] for item in page["data"]]
    assert texts == ["one", TEXT, "two"]
    assert len({item["id"] for item in page["data"]}) == 3
    newest = await get(gateway, f"{second['id']}/input_items", limit=1)
    assert newest["data"] == page["data"][-1:]
    assert newest["has_more"] is True


async def test_items_of_earlier_responses_can_be_referred_to(
    engine: ScriptedEngine, gateway: Gateway
) -> None:
    first = await create(gateway, input=[{"role": "user", "content": "one"}])
    [asked] = (await get(gateway, f"{first['id']}/input_items"))["data"]
    answered = first["output"][0]["id"]
    question = {"role": "user", "content": "two"}
    references = [{"type": "item_reference", "id": asked["id"]}, {"id": answered}, question]
    second = await create(gateway, input=references)
    assert _said(engine) == ["one", TEXT, "two"]
    listed = await get(gateway, f"{second['id']}/input_items", order="asc")
    assert [item["type"] for item in listed["data"]] == ["message"] * 3
    assert [item["id"] for item in listed["data"][:2]] == [asked["id"], answered]
    await create(gateway, input="three", previous_response_id=second["id"])
    assert _said(engine) == ["one", TEXT, "two", TEXT, "three"]


async def test_an_item_that_the_client_named_is_found_in_what_is_continued(
    engine: ScriptedEngine, gateway: Gateway
) -> None:
    named = {"type": "message", "role": "user", "content": "one", "id": "mine"}
    first = await create(gateway, input=[named])
    await create(gateway, input=[{"id": "mine"}], previous_response_id=first["id"])
    assert _said(engine) == ["one", TEXT, "one"]


async def test_what_cannot_be_referred_to(
    bus: Bus, engine: ScriptedEngine, gateway: Gateway
) -> None:
    hidden = await create(gateway, store=False)
    forgotten = await create(gateway)
    await gateway.client.delete(f"{PATH}/{forgotten['id']}")
    other = await create(gateway)
    names = ["mine", f"msg_{'0' * 32}00", other["output"][0]["id"][:-2] + "ff"]
    names += [found["output"][0]["id"] for found in (hidden, forgotten)]
    for name in names:
        refused = await gateway.client.post(PATH, json={"input": [{"id": name}]})
        assert (name, refused.status_code) == (name, 404)
        assert refused.json()["error"]["param"] == "input"
    async with running_gateway(bus, gateway.model_key, api_keys=("another",)) as guarded:
        await healthy(guarded)
        refused = await guarded.client.post(
            PATH,
            json={"input": [{"id": other["output"][0]["id"]}]},
            headers={"authorization": "Bearer another"},
        )
        assert refused.status_code == 404


def _said(engine: ScriptedEngine) -> list[str]:
    """The texts of the chat that an engine was asked to prepare last."""
    messages = json.loads(engine.prepares[-1].body)["messages"]
    return [message["content"][0]["text"] for message in messages]


async def test_tokens_are_counted_with_what_came_before(
    engine: ScriptedEngine, gateway: Gateway
) -> None:
    alone = (await gateway.client.post(f"{PATH}/input_tokens", json=BODY)).json()
    first = await create(gateway)
    body = BODY | {"previous_response_id": first["id"]}
    more = (await gateway.client.post(f"{PATH}/input_tokens", json=body)).json()
    assert alone["object"] == "response.input_tokens"
    assert more["input_tokens"] > alone["input_tokens"] > 0


@pytest.mark.parametrize("query", ["starting_after=x", "starting_after=-1"])
async def test_a_bad_offset_is_refused(
    engine: ScriptedEngine, gateway: Gateway, query: str
) -> None:
    response = await create(gateway)
    answer = await gateway.client.get(f"{PATH}/{response['id']}?stream=true&{query}")
    assert answer.status_code == 400
