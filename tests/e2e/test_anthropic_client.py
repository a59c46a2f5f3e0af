"""Anthropic's own client on the real small model."""

from collections.abc import Iterator
from typing import Any

import anthropic
import pytest
from anthropic import Anthropic

from tests.support import platform

KEY = "sk-test"
ASKED: dict[str, Any] = {
    "model": "smol",
    "max_tokens": 24,
    "extra_body": {"temperature": 0},
    "messages": [{"role": "user", "content": "Write one sentence about a fox."}],
}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("anthropic")
    flags = ("-np", "4", "-c", "8192", "-a", "smol", "--api-key", KEY)
    with platform.serve(folder, platform.demo_model(), *flags) as session:
        yield platform.url_of(session)


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[Anthropic]:
    with Anthropic(base_url=url, api_key=KEY, max_retries=0, timeout=90) as found:
        yield found


def text_of(message: anthropic.types.Message) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


def test_a_message(client: Anthropic) -> None:
    message = client.messages.create(system="You are a poet.", **ASKED)
    assert "fox" in text_of(message).lower()
    assert message.stop_reason in ("end_turn", "max_tokens")
    assert message.usage.output_tokens <= 24
    assert message.usage.input_tokens + (message.usage.cache_read_input_tokens or 0) > 10


def test_a_streamed_message_says_the_same(client: Anthropic) -> None:
    whole = client.messages.create(**ASKED)
    with client.messages.stream(**ASKED) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == text_of(whole) == text_of(final)
    assert final.stop_reason == whole.stop_reason
    assert final.usage.output_tokens == whole.usage.output_tokens


def test_the_raw_events(client: Anthropic) -> None:
    kinds = [event.type for event in client.messages.create(stream=True, **ASKED)]
    assert kinds[0] == "message_start"
    assert kinds[-2:] == ["message_delta", "message_stop"]


def test_a_stop_sequence_is_named(client: Anthropic) -> None:
    text = text_of(client.messages.create(**ASKED))
    word = text.split()[3]
    message = client.messages.create(stop_sequences=[word], **ASKED)
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", word)
    assert text_of(message) == text[: text.index(word)]


def test_tokens_are_counted(client: Anthropic) -> None:
    counted = client.messages.count_tokens(model="smol", messages=ASKED["messages"])
    usage = client.messages.create(**ASKED).usage
    assert counted.input_tokens == usage.input_tokens + (usage.cache_read_input_tokens or 0)


def test_tools_and_their_results_are_taken(client: Anthropic) -> None:
    message = client.messages.create(
        **ASKED
        | {
            "messages": [
                {"role": "user", "content": "What is the weather?"},
                {
                    "role": "assistant",
                    "content": [{"type": "tool_use", "id": "t1", "name": "weather", "input": {}}],
                },
                {
                    "role": "user",
                    "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "sunny"}],
                },
            ]
        }
    )
    assert message.content


def test_errors_are_the_clients_own(client: Anthropic, url: str) -> None:
    with pytest.raises(anthropic.BadRequestError) as refused:
        client.messages.create(**ASKED | {"messages": [{"role": "user", "content": "x " * 9000}]})
    body: Any = refused.value.body
    assert body["type"] == "error"
    assert body["error"]["type"] == "exceed_context_size_error"
    with (
        Anthropic(base_url=url, api_key="wrong", max_retries=0) as stranger,
        pytest.raises(anthropic.AuthenticationError),
    ):
        stranger.messages.create(**ASKED)


WEATHER: Any = {
    "name": "weather",
    "description": "The weather in a city",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 12}},
        "required": ["city"],
    },
}
CALLING: Any = ASKED | {
    "max_tokens": 120,
    "messages": [{"role": "user", "content": "What is the weather in Paris?"}],
    "tools": [WEATHER],
    "tool_choice": {"type": "tool", "name": "weather"},
}


def test_a_tool_is_called(client: Anthropic) -> None:
    message = client.messages.create(**CALLING)
    assert message.stop_reason == "tool_use"
    (call,) = [block for block in message.content if block.type == "tool_use"]
    assert call.name == "weather"
    assert isinstance(call.input["city"], str)


def test_a_streamed_call_is_the_same(client: Anthropic) -> None:
    whole = client.messages.create(**CALLING)
    with client.messages.stream(**CALLING) as stream:
        final = stream.get_final_message()
    calls = [
        [(block.name, block.input) for block in message.content if block.type == "tool_use"]
        for message in (whole, final)
    ]
    assert calls[0] == calls[1] != []
    assert final.stop_reason == "tool_use"
