"""Anthropic's requests as OpenAI chats."""

from typing import Any

import pytest

from schemas.errors import RequestError
from services.gateway.dialects import anthropic
from services.gateway.dialects.anthropic import to_chat, without_billing_hash

HELLO: dict[str, Any] = {"role": "user", "content": "Hello"}


def chat(**fields: Any) -> dict[str, Any]:
    return to_chat({"messages": [HELLO], **fields})


def messages(*given: Any, **fields: Any) -> list[Any]:
    return to_chat({"messages": list(given), **fields})["messages"]  # type: ignore[return-value]


def test_a_simple_request() -> None:
    asked = chat(max_tokens=5, temperature=0.5, top_k=3, top_p=0.9, stream=True, model="x")
    assert asked == {
        "messages": [HELLO],
        "max_tokens": 5,
        "temperature": 0.5,
        "top_k": 3,
        "top_p": 0.9,
        "stream": True,
    }


def test_no_limit_means_llama_servers_and_a_user_id_means_nothing() -> None:
    assert chat(metadata={"user_id": "u"}, service_tier="auto") == {
        "messages": [HELLO],
        "max_tokens": 4096,
    }


def test_stop_sequences_become_stop() -> None:
    assert chat(stop_sequences=["a", "b"])["stop"] == ["a", "b"]


@pytest.mark.parametrize("system", ["Be kind.", [{"type": "text", "text": "Be kind."}]])
def test_the_system_prompt_comes_first(system: Any) -> None:
    assert messages(HELLO, system=system) == [{"role": "system", "content": "Be kind."}, HELLO]


def test_system_blocks_are_joined_and_the_billing_header_is_levelled() -> None:
    header = "x-anthropic-billing-header: cc_version=2.1.101.e51; cc_entrypoint=cli; cch={};"
    first, second = (
        messages(
            HELLO,
            system=[
                {"type": "text", "text": header.format(cch)},
                {"type": "text", "text": "You are Claude Code.", "cache_control": {}},
            ],
        )
        for cch in ("a5145", "77b02")
    )
    assert first == second
    assert first[0]["content"] == header.format("fffff") + "You are Claude Code."


@pytest.mark.parametrize(
    "text",
    [
        "You say cch=a5145; now",
        "x-anthropic-billing-header: cch=a5145",
        "x-anthropic-billing-header: cch=a514567;",
        "x-anthropic-billing-header: none",
        " x-anthropic-billing-header: cch=a5145;",
    ],
)
def test_other_text_stays_as_it_is(text: str) -> None:
    assert without_billing_hash(text) == text


def test_blocks_of_an_assistant() -> None:
    blocks = [
        {"type": "thinking", "thinking": "I look. ", "signature": "s"},
        {"type": "redacted_thinking", "data": "x"},
        {"type": "text", "text": "Let me see."},
        {"type": "tool_use", "id": "t1", "name": "ls", "input": {"path": "."}},
    ]
    call = {"name": "ls", "arguments": '{"path":"."}'}
    assert messages({"role": "assistant", "content": blocks}) == [
        {
            "role": "assistant",
            "content": [{"type": "text", "text": "Let me see."}],
            "tool_calls": [{"id": "t1", "type": "function", "function": call}],
            "reasoning_content": "I look. ",
        }
    ]


def test_tool_results_become_messages_before_the_text_beside_them() -> None:
    blocks = [
        {"type": "text", "text": "There:"},
        {"type": "tool_result", "tool_use_id": "t1", "content": "sunny"},
        {"type": "tool_result", "tool_use_id": "t2", "content": [{"type": "text", "text": "25"}]},
        {"type": "tool_result", "tool_use_id": "t3", "is_error": True},
    ]
    assert messages({"role": "user", "content": blocks}) == [
        {"role": "tool", "tool_call_id": "t1", "content": "sunny"},
        {"role": "tool", "tool_call_id": "t2", "content": "25"},
        {"role": "tool", "tool_call_id": "t3", "content": ""},
        {"role": "user", "content": [{"type": "text", "text": "There:"}]},
    ]


def test_pictures_become_urls_also_in_tool_results() -> None:
    inline = {"type": "base64", "media_type": "image/png", "data": "AAA"}
    by_url = {"type": "url", "url": "http://x/y.png"}
    blocks = [
        {"type": "image", "source": by_url},
        {"type": "image", "source": {"type": "file", "file_id": "f"}},
        {
            "type": "tool_result",
            "tool_use_id": "t",
            "content": [{"type": "image", "source": inline}],
        },
    ]
    result, own = messages({"role": "user", "content": blocks})
    assert result["content"] == [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAA"}}
    ]
    assert own["content"] == [{"type": "image_url", "image_url": {"url": "http://x/y.png"}}]


def test_an_assistant_without_content_is_left_out() -> None:
    assert messages(HELLO, {"role": "assistant"}) == [HELLO]


def test_tools_and_their_choice() -> None:
    schema = {"type": "object", "properties": {}}
    tools = [
        {"name": "ls", "description": "List", "input_schema": schema},
        {"type": "web_search_20250305", "name": "web_search"},
    ]
    asked = chat(tools=tools, tool_choice={"type": "any", "disable_parallel_tool_use": True})
    function = {"name": "ls", "description": "List", "parameters": schema}
    assert asked["tools"] == [{"type": "function", "function": function}]
    assert asked["tool_choice"] == "required"
    assert asked["parallel_tool_calls"] is False


@pytest.mark.parametrize(
    ("kind", "expected"), [("auto", "auto"), ("tool", "required"), ("none", "none")]
)
def test_tool_choices(kind: str, expected: str) -> None:
    assert chat(tools=[{"name": "ls"}], tool_choice={"type": kind})["tool_choice"] == expected


def test_a_choice_without_tools_is_none() -> None:
    assert "tool_choice" not in chat(tools=[], tool_choice={"type": "any"})


def test_thinking() -> None:
    assert chat(thinking={"type": "enabled", "budget_tokens": 50})["thinking_budget_tokens"] == 50
    assert chat(thinking={"type": "enabled"})["thinking_budget_tokens"] == 10_000
    assert chat(thinking={"type": "disabled"})["chat_template_kwargs"] == {"enable_thinking": False}
    assert "thinking_budget_tokens" not in chat(thinking={"type": "adaptive"})


def test_structured_output() -> None:
    schema = {"type": "object"}
    wanted = {"type": "json_schema", "schema": schema}
    expected = {"type": "json_schema", "json_schema": {"schema": schema}}
    assert chat(output_format=wanted)["response_format"] == expected
    assert chat(output_config={"format": wanted})["response_format"] == expected
    assert "response_format" not in chat(output_config={"effort": "low"})


def test_no_messages_are_allowed_but_not_none_at_all() -> None:
    assert anthropic.translate({"messages": []}).body["messages"] == []
    with pytest.raises(RequestError, match="'messages' is required"):
        anthropic.translate({})


@pytest.mark.parametrize(
    "body",
    [
        {"messages": "x"},
        {"messages": [1]},
        {"messages": [{"content": "x"}]},
        {"messages": [{"role": "user"}]},
        {"messages": [{"role": "", "content": "x"}]},
        {"messages": [{"role": "user", "content": 5}]},
        {"messages": [{"role": "user", "content": [5]}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": 5}]}]},
        {"messages": [{"role": "user", "content": [{"type": "image", "source": 5}]}]},
        {"messages": [{"role": "assistant", "content": [{"type": "tool_use", "name": 5}]}]},
        {"messages": [HELLO], "system": 5},
        {"messages": [HELLO], "system": [5]},
        {"messages": [HELLO], "tools": 5},
        {"messages": [HELLO], "tools": [5]},
        {"messages": [HELLO], "tools": [{}]},
        {"messages": [HELLO], "tools": [{"name": "x", "input_schema": 5}]},
        {"messages": [HELLO], "tool_choice": "auto"},
        {"messages": [HELLO], "thinking": 5},
        {"messages": [HELLO], "thinking": {"type": "enabled", "budget_tokens": "many"}},
        {"messages": [HELLO], "thinking": {"type": "enabled", "budget_tokens": -1}},
        {"messages": [HELLO], "stop_sequences": 5},
        {"messages": [HELLO], "max_tokens": "x"},
        {"messages": [HELLO], "output_config": 5},
        {"messages": [HELLO], "stream": "yes"},
    ],
)
def test_what_is_wrong_is_named(body: dict[str, Any]) -> None:
    with pytest.raises(RequestError) as refused:
        anthropic.translate(body)
    assert refused.value.problem.status == 400
