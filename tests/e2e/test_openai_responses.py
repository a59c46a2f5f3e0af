"""OpenAI's Responses API through its own client, on the real small model."""

import json
import time
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai import OpenAI
from openai.types.responses import Response

from tests.support import platform

FOX = "Write one sentence about a fox."
ASKED: dict[str, Any] = {"model": "smol", "max_output_tokens": 24, "temperature": 0}
POLL_S = 0.05


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenAI]:
    folder = tmp_path_factory.mktemp("responses")
    flags = ("-np", "4", "-c", "8192", "-a", "smol")
    with (
        platform.serve(folder, platform.demo_model(), *flags) as session,
        platform.openai_client(platform.url_of(session)) as found,
    ):
        yield found


def settled(client: OpenAI, response_id: str) -> Response:
    """The response once it is neither queued nor in progress."""
    response = client.responses.retrieve(response_id)
    while response.status in ("queued", "in_progress"):  # as OpenAI's own guide does
        time.sleep(POLL_S)
        response = client.responses.retrieve(response_id)
    return response


def test_a_response(client: OpenAI) -> None:
    response = client.responses.create(input=FOX, instructions="You are a poet.", **ASKED)
    assert response.id.startswith("resp_")
    assert response.status in ("completed", "incomplete")
    assert response.output_text
    assert response.instructions == "You are a poet."
    assert response.usage is not None
    assert 0 < response.usage.output_tokens <= 24
    assert client.responses.retrieve(response.id) == response


def test_a_streamed_response_says_the_same(client: OpenAI) -> None:
    whole = client.responses.create(input=FOX, **ASKED)
    events = list(client.responses.create(input=FOX, stream=True, **ASKED))
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(deltas) == whole.output_text
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[0].type == "response.created"
    last = events[-1]
    assert last.type == f"response.{whole.status}"
    assert last.response.output_text == whole.output_text  # type: ignore[union-attr]


def test_the_helper_for_streams(client: OpenAI) -> None:
    with client.responses.stream(input=FOX, **ASKED) as stream:
        text = "".join(
            event.delta for event in stream if event.type == "response.output_text.delta"
        )
        assert stream.get_final_response().output_text == text


def test_a_conversation_goes_on_from_a_stored_response(client: OpenAI) -> None:
    first = client.responses.create(input="My name is Bob.", **ASKED)
    second = client.responses.create(
        input="What is my name?", previous_response_id=first.id, **ASKED
    )
    by_hand = client.responses.create(
        input=[
            {"role": "user", "content": "My name is Bob."},
            {"role": "assistant", "content": first.output_text},
            {"role": "user", "content": "What is my name?"},
        ],
        **ASKED,
    )
    assert second.output_text == by_hand.output_text
    assert second.previous_response_id == first.id
    items = list(client.responses.input_items.list(second.id, order="asc"))
    assert [item.role for item in items] == ["user", "assistant", "user"]  # type: ignore[union-attr]


def test_a_background_response_is_polled(client: OpenAI) -> None:
    response = client.responses.create(input=FOX, background=True, **ASKED)
    assert response.status in ("queued", "in_progress", "completed", "incomplete")
    done = settled(client, response.id)
    assert done.output_text == client.responses.create(input=FOX, **ASKED).output_text


def test_a_stream_is_left_and_resumed(client: OpenAI) -> None:
    asked = ASKED | {"max_output_tokens": 60}
    stream = client.responses.create(input=FOX, background=True, stream=True, **asked)
    seen: list[Any] = []
    for event in stream:
        seen.append(event)
        if event.type == "response.output_text.delta":
            break
    stream.close()
    response_id = seen[0].response.id
    rest = list(
        client.responses.retrieve(response_id, stream=True, starting_after=seen[-1].sequence_number)
    )
    deltas = [e.delta for e in [*seen, *rest] if e.type == "response.output_text.delta"]
    assert [event.sequence_number for event in [*seen, *rest]] == list(range(len(seen) + len(rest)))
    assert "".join(deltas) == settled(client, response_id).output_text


def test_a_background_response_is_cancelled(client: OpenAI) -> None:
    asked = ASKED | {"max_output_tokens": 2000}
    response = client.responses.create(
        input=FOX, background=True, extra_body={"ignore_eos": True}, **asked
    )
    assert client.responses.cancel(response.id).status == "cancelled"
    assert client.responses.retrieve(response.id).status == "cancelled"


def test_a_deleted_response_is_not_found(client: OpenAI) -> None:
    response = client.responses.create(input=FOX, **ASKED)
    client.responses.delete(response.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(response.id)


def test_one_that_is_not_stored_is_not_found(client: OpenAI) -> None:
    response = client.responses.create(input=FOX, store=False, **ASKED)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(response.id)


def test_input_tokens_are_those_that_it_would_use(client: OpenAI) -> None:
    counted = client.responses.input_tokens.count(model="smol", input=FOX)
    response = client.responses.create(input=FOX, **ASKED)
    assert response.usage is not None
    assert counted.input_tokens == response.usage.input_tokens


def test_tools_of_openais_servers_are_skipped(client: OpenAI) -> None:
    response = client.responses.create(input=FOX, tools=[{"type": "web_search_preview"}], **ASKED)
    assert response.output_text


def test_what_was_called_is_taken_back(client: OpenAI) -> None:
    response = client.responses.create(
        input=[
            {"role": "user", "content": "What is the weather?"},
            {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "sunny"},
        ],
        **ASKED,
    )
    assert response.output_text


WEATHER: Any = {
    "type": "function",
    "name": "weather",
    "description": "The weather in a city",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 12}},
        "required": ["city"],
    },
    "strict": True,
}
CALLING: Any = ASKED | {
    "input": "What is the weather in Paris?",
    "max_output_tokens": 120,
    "tools": [WEATHER],
    "tool_choice": {"type": "function", "name": "weather"},
}


def test_a_function_is_called_and_answered(client: OpenAI) -> None:
    response = client.responses.create(**CALLING)
    (call,) = [item for item in response.output if item.type == "function_call"]
    assert call.name == "weather"
    assert isinstance(json.loads(call.arguments)["city"], str)
    answer = client.responses.create(
        input=[{"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}],
        previous_response_id=response.id,
        tools=[WEATHER],
        **ASKED,
    )
    assert answer.output


def test_a_streamed_call_is_the_same(client: OpenAI) -> None:
    whole = client.responses.create(**CALLING)
    events = list(client.responses.create(stream=True, **CALLING))
    deltas = [e.delta for e in events if e.type == "response.function_call_arguments.delta"]
    (call,) = [item for item in whole.output if item.type == "function_call"]
    assert "".join(deltas) == call.arguments


def test_a_format_is_kept_to(client: OpenAI) -> None:
    schema = {
        "type": "object",
        "properties": {"legs": {"type": "integer", "maximum": 9}},
        "required": ["legs"],
        "additionalProperties": False,
    }
    response = client.responses.create(
        input="How many legs does a fox have?",
        text={"format": {"type": "json_schema", "name": "legs", "schema": schema, "strict": True}},
        **ASKED,
    )
    assert list(json.loads(response.output_text)) == ["legs"]


def test_a_bad_request_names_what_is_wrong(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.responses.create(input=FOX, previous_response_id="resp_none", **ASKED)
    assert refused.value.param == "previous_response_id"
