"""The official client on the real small model: what it sees is what OpenAI's service would show."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from openai import BadRequestError, OpenAI

from tests.support import platform

FOX = [{"role": "user", "content": "Write one sentence about a fox."}]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenAI]:
    folder = tmp_path_factory.mktemp("smollm2")
    flags = ("-np", "8", "-c", "8192", "-a", "smol")
    with (
        platform.serve(folder, platform.demo_model(), *flags) as session,
        platform.openai_client(platform.url_of(session)) as found,
    ):
        yield found


def test_models(client: OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["smol"]


def test_a_chat(client: OpenAI) -> None:
    answer = client.chat.completions.create(
        model="smol",
        messages=FOX,
        max_tokens=24,
        temperature=0,  # type: ignore[arg-type]
    )
    assert answer.object == "chat.completion"
    (choice,) = answer.choices
    assert choice.message.role == "assistant"
    assert "fox" in (choice.message.content or "").lower()
    assert choice.finish_reason in ("stop", "length")
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert 0 < answer.usage.completion_tokens <= 24


def test_a_streamed_chat_says_the_same_as_one_that_is_not(client: OpenAI) -> None:
    asked = {"model": "smol", "messages": FOX, "max_tokens": 24, "temperature": 0}
    whole = client.chat.completions.create(**asked)  # type: ignore[call-overload]
    stream = client.chat.completions.create(  # type: ignore[call-overload]
        **asked, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    choices = [chunk.choices[0] for chunk in chunks if chunk.choices]
    assert "".join(c.delta.content or "" for c in choices) == whole.choices[0].message.content
    assert [c.delta.role for c in choices if c.delta.role] == ["assistant"]
    reasons = [c.finish_reason for c in choices]
    assert reasons[:-1] == [None] * (len(reasons) - 1)
    assert reasons[-1] == whole.choices[0].finish_reason
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert len({chunk.id for chunk in chunks}) == 1


def test_a_text_completion(client: OpenAI) -> None:
    asked = {"model": "smol", "prompt": "One, two, three,", "max_tokens": 8, "temperature": 0}
    whole = client.completions.create(**asked)  # type: ignore[call-overload]
    assert "four" in whole.choices[0].text
    stream = client.completions.create(**asked, stream=True)  # type: ignore[call-overload]
    assert "".join(chunk.choices[0].text for chunk in stream) == whole.choices[0].text


def test_a_stop_string_is_not_shown_and_ends_the_answer(client: OpenAI) -> None:
    answer = client.completions.create(
        model="smol", prompt="One, two, three,", max_tokens=40, temperature=0, stop=[" six"]
    )
    assert answer.choices[0].finish_reason == "stop"
    assert answer.choices[0].text.endswith("five,")


def test_eight_at_once_are_eight_whole_answers(client: OpenAI) -> None:
    def ask(number: int) -> tuple[str, str | None]:
        text, reason = "", None
        stream = client.chat.completions.create(
            model="smol",
            messages=[{"role": "user", "content": f"Tell me about the number {number}."}],
            max_tokens=20,
            seed=number,
            stream=True,
        )
        for chunk in stream:
            text += chunk.choices[0].delta.content or ""
            reason = chunk.choices[0].finish_reason
        return text, reason

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, range(8)))
    assert all(text for text, _ in answers)
    assert all(reason in ("stop", "length") for _, reason in answers)


def test_a_prompt_longer_than_the_context_is_the_clients_error(client: OpenAI) -> None:
    with pytest.raises(BadRequestError) as refused:
        client.completions.create(model="smol", prompt="word " * 5000)
    body = refused.value.response.json()["error"]
    assert body["type"] == "exceed_context_size_error"
    assert body["n_prompt_tokens"] > body["n_ctx"] == 1024
