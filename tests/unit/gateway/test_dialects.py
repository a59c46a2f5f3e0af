"""What clients say, under native names."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schemas.errors import RequestError
from services.gateway.dialects import native, openai_chat, openai_completion

USER = {"role": "user", "content": "hi"}


def chat(**fields: object) -> dict[str, object]:
    return openai_chat.translate({"messages": [USER], **fields}).body


def completion(**fields: object) -> dict[str, object]:
    return native.translate({"prompt": "hi", **fields}).body


def refusal(call: Any, **fields: object) -> str:
    with pytest.raises(RequestError) as caught:
        call(**fields)
    assert caught.value.problem.status == 400
    return caught.value.problem.message


@pytest.mark.parametrize("call", [chat, completion])
def test_null_is_absent_and_unknown_fields_go_through(call: Any) -> None:
    body = call(temperature=None, top_k=3, stop="x", n=2, user="u")
    assert "temperature" not in body
    assert (body["top_k"], body["stop"], body["n"], body["user"]) == (3, ["x"], 2, "u")


@pytest.mark.parametrize("call", [chat, completion])
@pytest.mark.parametrize(
    "fields",
    [
        {"stream": "yes"},
        {"stream": 1},
        {"max_tokens": "12"},
        {"max_tokens": True},
        {"n": []},
        {"stop": 3},
        {"stop": ["a", 3]},
        {"stop": {"a": 1}},
        {"stream_options": "x"},
        {"stream_options": {"include_usage": "x"}},
        {"cache_prompt": 1},
    ],
)
def test_wrong_types_are_refused_by_name(call: Any, fields: dict[str, object]) -> None:
    (name,) = fields
    assert name in refusal(call, **fields)


def test_chat_streams_only_when_asked() -> None:
    assert not openai_chat.translate({"messages": [USER]}).is_stream
    assert not openai_chat.translate({"messages": [USER], "stream": None}).is_stream
    request = openai_chat.translate({"messages": [USER], "stream": True})
    assert request.is_stream
    assert request.kind == "chat"


@pytest.mark.parametrize(
    ("fields", "n_probs"),
    [
        ({"logprobs": True}, 20),
        ({"logprobs": True, "top_logprobs": 3}, 3),
        ({"logprobs": False}, None),
        ({"n_probs": 4}, 4),
        ({"top_logprobs": None}, None),
    ],
)
def test_chat_log_probabilities(fields: dict[str, object], n_probs: int | None) -> None:
    body = chat(**fields)
    assert body.get("n_probs") == n_probs
    assert not {"logprobs", "top_logprobs"} & body.keys()


def test_chat_log_probabilities_that_make_no_sense() -> None:
    assert "requires logprobs" in refusal(chat, top_logprobs=3)
    assert "logprobs" in refusal(chat, logprobs=3)
    assert "top_logprobs" in refusal(chat, logprobs=True, top_logprobs="3")
    tools = [{"type": "function", "function": {"name": "f"}}]
    assert "tools + stream" in refusal(chat, logprobs=True, tools=tools, stream=True)


def test_completion_logprobs_is_a_number() -> None:
    for logprobs, n_probs in ((5, 5), (0, 0), (True, 1), (False, 0)):
        body = openai_completion.translate({"prompt": "x", "logprobs": logprobs}).body
        assert body["logprobs"] == n_probs
    assert "logprobs" in refusal(completion, logprobs="5")


def test_openai_fields_that_llama_server_ignores() -> None:
    fields: dict[str, object] = {"prompt": "x", "echo": True, "best_of": 3, "suffix": "y"}
    assert openai_completion.translate(fields).body == {"prompt": "x"}


@pytest.mark.parametrize(
    "prompt", ["", "x", [1, 2], ["a", [1]], [[1], [2]], {"prompt_string": "x"}]
)
def test_prompts(prompt: object) -> None:
    request = native.translate({"prompt": prompt})
    assert (request.kind, request.body["prompt"]) == ("completion", prompt)


@pytest.mark.parametrize("fields", [{}, {"prompt": None}, {"prompt": 3}, {"prompt": True}])
def test_prompts_that_are_none(fields: dict[str, object]) -> None:
    with pytest.raises(RequestError, match="prompt"):
        native.translate(fields)


@pytest.mark.parametrize(
    ("response_format", "schema"),
    [
        ({"type": "text"}, None),
        ({}, None),
        (None, None),
        ({"type": "json_object"}, {"type": "object"}),
        ({"type": "json_object", "schema": {"type": "array"}}, {"type": "array"}),
        (
            {"type": "json_schema", "json_schema": {"schema": {"type": "string"}}},
            {"type": "string"},
        ),
        ({"type": "json_schema"}, {"type": "object"}),
    ],
)
def test_response_formats(response_format: object, schema: object) -> None:
    body = chat(response_format=response_format)
    assert body.get("json_schema") == schema
    assert "response_format" not in body


def test_constraints_that_exclude_each_other() -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    assert "both" in refusal(chat, json_schema={}, grammar="root ::= x")
    assert "tools" in refusal(chat, grammar="root ::= x", tools=tools)
    assert "xml" in refusal(chat, response_format={"type": "xml"})
    refusal(chat, response_format="json")
    refusal(chat, response_format={"type": "json_schema", "json_schema": []})


def test_tool_choices() -> None:
    assert chat()["tool_choice"] == "auto"
    assert chat(tool_choice="required")["tool_choice"] == "required"
    named = {"type": "function", "function": {"name": "f"}}
    assert chat(tool_choice=named)["tool_choice"] == named
    for wrong in ("sometimes", {"type": "function"}, {"type": "function", "function": {"name": 1}}):
        refusal(chat, tool_choice=wrong)


@pytest.mark.parametrize(
    "tools", ["x", [1], [{}], [{"type": "web"}], [{"type": "function", "function": {"name": 1}}]]
)
def test_tools_that_are_none(tools: object) -> None:
    refusal(chat, tools=tools)


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": None, "tool_calls": []},
        {"role": "assistant", "content": ""},
        {"role": "user", "content": None},
        {"role": "developer", "content": [{"type": "text", "text": "a"}]},
        {"role": "tool", "content": "4", "tool_call_id": "c1", "name": "f"},
        {"role": "ipython", "content": "4"},
        {
            "role": "assistant",
            "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": "{}"}}],
        },
    ],
)
def test_messages_that_pass(message: dict[str, object]) -> None:
    request = openai_chat.translate({"messages": [USER, message]})
    assert request.body["messages"] == [USER, message]


@pytest.mark.parametrize(
    ("messages", "says"),
    [
        (None, "required"),
        ("hi", "array"),
        ({}, "array"),
        ([], "at least one"),
        (["hi"], "messages[0]"),
        ([USER, None], "messages[1]"),
        ([{"content": "x"}], "role"),
        ([{"role": "", "content": "x"}], "role"),
        ([{"role": "x" * 65, "content": "x"}], "role"),
        ([{"role": 3, "content": "x"}], "role"),
        ([{"role": ["user"], "content": "x"}], "role"),
        ([{"role": "user"}], "content"),
        ([{"role": "assistant"}], "tool_calls"),
        ([{"role": "user", "content": 3}], "content"),
        ([{"role": "user", "content": {}}], "content"),
        ([{"role": "user", "content": ["x"]}], "content[0]"),
        ([{"role": "user", "content": [{"type": "text"}]}], "text"),
        ([{"role": "user", "content": [{"type": "magic"}]}], "unsupported"),
        ([{"role": "user", "content": [{"type": ["text"]}]}], "unsupported"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "mmproj"),
        ([{"role": "user", "content": "x", "name": 3}], "name"),
        ([{"role": "assistant", "tool_calls": "x"}], "tool_calls"),
        ([{"role": "assistant", "tool_calls": [{}]}], "tool_calls[0]"),
        ([{"role": "assistant", "tool_calls": [{"type": "function", "function": {}}]}], "name"),
    ],
)
def test_messages_that_do_not(messages: object, says: str) -> None:
    with pytest.raises(RequestError) as caught:
        openai_chat.translate({"messages": messages})
    assert says in caught.value.problem.message


NAMES = st.sampled_from(
    [
        *("prompt", "messages", "role", "content", "type", "text", "stream", "stop", "n"),
        *("stream_options", "include_usage", "max_tokens", "n_predict", "logprobs", "function"),
        *("top_logprobs", "tools", "tool_calls", "tool_choice", "response_format", "schema"),
        *("json_schema", "grammar", "chat_template_kwargs", "reasoning_effort", "name"),
    ]
)
JSON = st.recursive(
    st.sampled_from([None, True, -1, 2**70, 1.5, "", "user", "assistant", "text", "json_schema"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)


def status_of(translate: Any, body: dict[str, object]) -> int:
    """200 if the body is accepted, else the status of the refusal."""
    try:
        translate(body)
    except RequestError as error:
        return error.problem.status
    return 200


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(NAMES, JSON, max_size=6))
def test_any_json_is_translated_or_refused(body: dict[str, object]) -> None:
    before = repr(body)
    for translate in (native.translate, openai_completion.translate, openai_chat.translate):
        assert status_of(translate, body) in (200, 400)
        assert repr(body) == before
