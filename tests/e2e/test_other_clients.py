"""Clients that speak OpenAI's dialect in their own ways, on the real small model."""

import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support import platform

FOX = "Write one sentence about a fox."
KEY = "sk-test"


@pytest.fixture(scope="module")
def base_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("clients")
    flags = ("-np", "4", "-c", "8192", "-a", "smol", "--api-key", KEY)
    with platform.serve(folder, platform.demo_model(), *flags) as session:
        yield f"{platform.url_of(session)}/v1"


@pytest.mark.parametrize("is_responses", [False, True])
def test_langchain(base_url: str, is_responses: bool) -> None:
    from langchain_openai import ChatOpenAI

    model = ChatOpenAI(
        base_url=base_url,
        api_key=KEY,  # type: ignore[arg-type]
        model="smol",
        temperature=0,
        max_tokens=24,  # type: ignore[call-arg]
        stream_usage=True,
        use_responses_api=is_responses,
    )
    whole = model.invoke(FOX)
    assert "fox" in whole.text.lower()
    assert whole.usage_metadata is not None
    chunks = list(model.stream(FOX))
    assert "".join(chunk.text for chunk in chunks) == whole.text
    total: Any = chunks[0]
    for chunk in chunks[1:]:
        total += chunk
    assert total.usage_metadata["output_tokens"] == whole.usage_metadata["output_tokens"]


@pytest.fixture
def litellm(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Without its list of prices, which it would fetch when it is imported."""
    monkeypatch.setitem(os.environ, "LITELLM_LOCAL_MODEL_COST_MAP", "True")
    import litellm as module

    return module


def test_litellm(base_url: str, litellm: Any) -> None:
    asked: dict[str, Any] = {
        "model": "openai/smol",
        "api_base": base_url,
        "api_key": KEY,
        "messages": [{"role": "user", "content": FOX}],
        "max_tokens": 24,
        "temperature": 0,
    }
    whole = litellm.completion(**asked)
    text = whole.choices[0].message.content
    assert "fox" in text.lower()
    chunks = list(litellm.completion(**asked, stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == text


def test_litellm_through_anthropics_dialect(base_url: str, litellm: Any) -> None:
    asked: dict[str, Any] = {
        "model": "anthropic/smol",
        "api_base": base_url.removesuffix("/v1"),
        "api_key": KEY,
        "messages": [{"role": "user", "content": FOX}],
        "max_tokens": 24,
        "temperature": 0,
    }
    text = litellm.completion(**asked).choices[0].message.content
    assert "fox" in text.lower()
    chunks = list(litellm.completion(**asked, stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == text


def test_llama_index(base_url: str) -> None:
    from llama_index.core.llms import ChatMessage
    from llama_index.llms.openai_like import OpenAILike

    model = OpenAILike(
        model="smol",
        api_base=base_url,
        api_key=KEY,
        is_chat_model=True,
        temperature=0,
        max_tokens=24,
        context_window=2048,
    )
    whole = model.chat([ChatMessage(role="user", content=FOX)]).message.content
    assert whole
    assert "fox" in whole.lower()
    chunks = list(model.stream_chat([ChatMessage(role="user", content=FOX)]))
    assert "".join(chunk.delta or "" for chunk in chunks) == whole


def test_llama_index_completes_text(base_url: str) -> None:
    from llama_index.llms.openai_like import OpenAILike

    model = OpenAILike(
        model="smol",
        api_base=base_url,
        api_key=KEY,
        is_chat_model=False,
        temperature=0,
        max_tokens=8,
        context_window=2048,
    )
    whole = model.complete("One, two, three,").text
    assert "four" in whole
    chunks = list(model.stream_complete("One, two, three,"))
    assert "".join(chunk.delta or "" for chunk in chunks) == whole
