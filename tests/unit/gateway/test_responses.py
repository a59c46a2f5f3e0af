"""OpenAI's responses as chats."""

from typing import Any

import pytest

from schemas.errors import RequestError
from services.gateway.dialects import responses
from services.gateway.dialects.responses import input_items, to_chat
from services.gateway.responses import page_of

USER = {"role": "user", "content": [{"type": "text", "text": "Hello"}]}
FUNCTION: dict[str, Any] = {
    "type": "function",
    "name": "ls",
    "description": "List",
    "parameters": {"type": "object", "properties": {}},
    "strict": True,
}


def chat(**fields: Any) -> dict[str, Any]:
    return to_chat({"input": "Hello", **fields})


def messages(*items: Any, **fields: Any) -> list[Any]:
    return to_chat({"input": list(items), **fields})["messages"]  # type: ignore[return-value]


def test_a_string_is_a_user_message() -> None:
    assert chat() == {"messages": [USER]}


def test_instructions_come_first() -> None:
    system = {"role": "system", "content": "Be kind."}
    assert chat(instructions="Be kind.")["messages"] == [system, USER]


def test_what_means_nothing_to_a_chat_is_left_out_and_the_rest_goes_through() -> None:
    asked = chat(
        model="x",
        metadata={"a": "b"},
        store=True,
        truncation="auto",
        user="me",
        service_tier="auto",
        stream=True,
        stream_options={"include_obfuscation": False},
        temperature=0.5,
        top_k=3,
        max_output_tokens=7,
        timings_per_token=True,
        parallel_tool_calls=False,
        prompt_cache_key="k",
    )
    assert asked == {
        "messages": [USER],
        "stream": True,
        "temperature": 0.5,
        "top_k": 3,
        "max_tokens": 7,
        "timings_per_token": True,
        "parallel_tool_calls": False,
    }


def test_messages_in_all_their_forms() -> None:
    found = messages(
        {"role": "developer", "content": "D"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "U"}]},
        {"role": "assistant", "content": "A"},
        {"role": "user", "content": [{"type": "input_image", "image_url": "http://x"}]},
        {
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "id": "msg_1",
            "content": [
                {"type": "output_text", "text": "B", "annotations": []},
                {"type": "refusal", "refusal": "C"},
            ],
        },
    )
    text = [{"role": m["role"], "content": [p.get("text") for p in m["content"]]} for m in found]
    assert text == [
        {"role": "developer", "content": ["D"]},
        {"role": "user", "content": ["U"]},
        {"role": "assistant", "content": ["A"]},
        {"role": "user", "content": [None]},
        {"role": "assistant", "content": ["B", "C"]},
    ]


def test_what_the_model_wrote_in_one_turn_is_one_message() -> None:
    call = {"type": "function_call", "call_id": "c1", "name": "ls", "arguments": "{}"}
    found = messages(
        {"role": "user", "content": "U"},
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "R"}]},
        {"role": "assistant", "content": "A"},
        call,
        call | {"call_id": "c2"},
        {"type": "function_call_output", "call_id": "c1", "output": "out"},
        {
            "type": "function_call_output",
            "call_id": "c2",
            "output": [{"type": "input_text", "text": "parts"}],
        },
    )
    assert found[1] == {
        "role": "assistant",
        "reasoning_content": "R",
        "content": [{"type": "text", "text": "A"}],
        "tool_calls": [
            {"id": name, "type": "function", "function": {"name": "ls", "arguments": "{}"}}
            for name in ("c1", "c2")
        ],
    }
    assert found[2:] == [
        {"role": "tool", "tool_call_id": "c1", "content": "out"},
        {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "parts"}]},
    ]


def test_thoughts_may_be_a_summary_or_hidden() -> None:
    summary = [{"type": "summary_text", "text": "S"}]
    (message,) = messages({"type": "reasoning", "summary": summary})
    assert message["reasoning_content"] == "S"
    assert messages({"type": "reasoning", "summary": [], "encrypted_content": "x"}) == []


def test_history_comes_before_the_input_and_after_the_instructions() -> None:
    history = input_items({"input": [{"role": "user", "content": "Before"}]})
    found = to_chat({"input": "Now", "instructions": "I"}, history)["messages"]
    assert isinstance(found, list)
    assert [message["role"] for message in found] == ["system", "user", "user"]
    assert found[1]["content"][0]["text"] == "Before"


def test_functions_are_tools_and_others_are_left_out() -> None:
    asked = chat(tools=[FUNCTION, {"type": "web_search_preview"}], tool_choice="required")
    function = {name: value for name, value in FUNCTION.items() if name != "type"}
    assert asked["tools"] == [{"type": "function", "function": function}]
    assert asked["tool_choice"] == "required"


def test_without_functions_there_is_nothing_to_choose() -> None:
    assert chat(tools=[{"type": "web_search_preview"}], tool_choice="required") == {
        "messages": [USER]
    }


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("auto", "auto"),
        ("none", "none"),
        ({"type": "function", "name": "ls"}, {"type": "function", "function": {"name": "ls"}}),
        ({"type": "allowed_tools", "mode": "required", "tools": []}, "required"),
        ({"type": "file_search"}, "auto"),
    ],
)
def test_tool_choices(choice: Any, expected: Any) -> None:
    assert chat(tools=[FUNCTION], tool_choice=choice)["tool_choice"] == expected


def test_formats() -> None:
    schema = {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": True}
    assert chat(text={"format": schema})["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "n", "schema": {"type": "object"}, "strict": True},
    }
    assert chat(text={"format": {"type": "text"}})["response_format"] == {"type": "text"}
    assert "response_format" not in chat(text={"verbosity": "low"})


def test_effort_and_probabilities() -> None:
    assert chat(reasoning={"effort": "low"})["reasoning_effort"] == "low"
    asked = chat(include=["message.output_text.logprobs"], top_logprobs=3)
    assert (asked["logprobs"], asked["top_logprobs"]) == (True, 3)
    assert "logprobs" not in chat(top_logprobs=3)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "input"),
        ({"input": 5}, "input"),
        ({"input": []}, "messages"),
        ({"input": [5]}, "input"),
        ({"input": [{}]}, "input"),
        ({"input": [{"type": 5}]}, "input"),
        ({"input": [{"type": "computer_call"}]}, "input"),
        ({"input": [{"role": "robot", "content": "x"}]}, "input"),
        ({"input": [{"role": "user"}]}, "input"),
        ({"input": [{"role": "user", "content": [5]}]}, "input"),
        ({"input": [{"role": "user", "content": [{"type": "input_file"}]}]}, "input"),
        ({"input": [{"role": "user", "content": [{"type": "input_text"}]}]}, "input"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input"),
        ({"input": [{"role": "assistant", "content": [{"type": "x"}]}]}, "input"),
        ({"input": [{"type": "function_call", "call_id": "x"}]}, "input"),
        ({"input": [{"type": "function_call_output", "output": "x"}]}, "input"),
        ({"input": [{"type": "function_call_output", "call_id": "x"}]}, "input"),
        ({"input": [{"type": "reasoning", "content": [5]}]}, "input"),
        ({"input": "x", "tools": 5}, "tools"),
        ({"input": "x", "tools": [5]}, "tools"),
        ({"input": "x", "tools": [{"type": "function"}]}, "tools"),
        ({"input": "x", "text": 5}, "text"),
        ({"input": "x", "text": {"format": {"type": "xml"}}}, "response_format"),
        ({"input": "x", "include": 5}, "include"),
        ({"input": "x", "metadata": 5}, "metadata"),
        ({"input": "x", "store": 5}, "store"),
        ({"input": "x", "background": True, "store": False}, "store"),
        ({"input": "x", "previous_response_id": 5}, "previous_response_id"),
        ({"input": "x", "conversation": "conv_1"}, "conversation"),
        ({"input": "x", "prompt": {"id": "p"}}, "prompt"),
        ({"input": "x", "max_output_tokens": "x"}, "max_output_tokens"),
        ({"input": "x", "instructions": 5}, "instructions"),
    ],
)
def test_what_is_wrong_is_named(body: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError) as refused:
        responses.translate(body)
    assert (refused.value.problem.status, refused.value.problem.param) == (400, param)


ITEMS: list[dict[str, object]] = [{"id": f"in_{n}"} for n in range(5)]


def ids_of(**query: str) -> tuple[list[object], bool]:
    page: Any = page_of(ITEMS, query)
    return [item["id"] for item in page["data"]], page["has_more"]


def test_pages() -> None:
    assert ids_of() == (["in_4", "in_3", "in_2", "in_1", "in_0"], False)
    assert ids_of(order="asc", limit="2") == (["in_0", "in_1"], True)
    assert ids_of(limit="2", after="in_3") == (["in_2", "in_1"], True)
    assert ids_of(after="in_0") == ([], False)


@pytest.mark.parametrize("query", [{"limit": "0"}, {"limit": "x"}, {"after": "in_9"}])
def test_bad_pages(query: dict[str, str]) -> None:
    with pytest.raises(RequestError):
        page_of(ITEMS, query)
