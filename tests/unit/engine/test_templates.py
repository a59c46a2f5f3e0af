"""Which template is used, what a chat becomes, and what a template may not do."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import RequestError
from services.engine.errors import TemplateUnusable
from services.engine.template_caps import Caps, probe
from services.engine.templates import CHATML
from tests.support.templates import (
    ANSWER,
    AT_MS,
    LINES,
    QWEN_LIKE,
    SYSTEM,
    TOOL,
    USER,
    refusal,
    render,
    templates,
)


@pytest.mark.parametrize(
    ("chosen", "changes", "expected"),
    [
        ("", {}, CHATML),
        ("chatml", {}, CHATML),
        ("", {"of_model": {"": LINES}}, LINES),
        ("", {"of_model": {"tool_use": LINES}}, LINES),
        ("mine", {"of_model": {"": LINES}}, "mine"),
        ("plainchat", {}, "plainchat"),
        ("chatml", {"is_jinja": False}, "chatml"),
    ],
)
def test_the_choice(chosen: str, changes: dict[str, Any], expected: str) -> None:
    assert templates(chosen, **changes).source == expected


def test_chatml_is_the_last_resort() -> None:
    prompt = templates().apply({"messages": [SYSTEM, USER]}, AT_MS).prompt
    assert prompt == (
        "<|im_start|>system\nBe good<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_text_that_is_no_template_is_its_own_prompt() -> None:
    assert render("This is not a chat template, it is") == "This is not a chat template, it is"


def test_the_tool_template_is_used_when_there_are_tools() -> None:
    both = templates(of_model={"": "plain", "tool_use": "with {{ tools|length }}"})
    assert both.apply({"messages": [USER]}, AT_MS).prompt == "plain"
    assert both.apply({"messages": [USER], "tools": [TOOL]}, AT_MS).prompt == "with 1"


def test_a_broken_tool_template_is_ignored() -> None:
    both = templates(of_model={"": "plain", "tool_use": "{% if %}"})
    assert both.apply({"messages": [USER], "tools": [TOOL]}, AT_MS).prompt == "plain"


@pytest.mark.parametrize("source", ["{% if %}", "{{", "{% for x in y %}", "{{ x|nosuchfilter }}"])
def test_what_does_not_parse_stops_the_start(source: str) -> None:
    with pytest.raises(TemplateUnusable, match="does not parse"):
        templates(source)


def test_a_digest_tells_templates_apart() -> None:
    digests = {
        templates().digest,
        templates(LINES).digest,
        templates(LINES, prefill_assistant=False).digest,
        templates("chatml", is_jinja=False).digest,
        templates(of_model={"": LINES, "tool_use": "x"}).digest,
    }
    assert len(digests) == 5
    assert templates(LINES).digest == templates(of_model={"": LINES}).digest


def test_named_templates_take_roles_and_texts_only() -> None:
    named = templates("plainchat")
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    body: dict[str, Any] = {"messages": [SYSTEM, {"role": "user", "content": parts}]}
    assert named.apply(body, AT_MS).prompt == "system|Be good;user|a\nb;>"
    assert named.apply({"messages": [USER, ANSWER]}, AT_MS).prompt == "user|Hi;assistant|Well, ;"
    for extra in ({"tools": [TOOL]}, {"tool_choice": "none"}):
        with pytest.raises(RequestError, match="requires --jinja"):
            named.apply(body | extra, AT_MS)


def test_without_jinja_an_unknown_template_is_refused() -> None:
    with pytest.raises(RequestError, match="try using --jinja"):
        templates(LINES, is_jinja=False).apply({"messages": [USER]}, AT_MS)


# ---- what templates are given


@pytest.mark.parametrize(
    ("source", "body", "expected"),
    [
        (LINES, {"messages": [{"role": "user", "content": None}]}, "user:\n"),
        (LINES, {"messages": [{"role": "oracle", "content": "x"}]}, "oracle:x\n"),
        (LINES, {"messages": [{"role": "developer", "content": "x"}]}, "system:x\n"),
        (LINES, {"messages": []}, ""),
        ("{{ bos_token }}x{{ eos_token }}", {"messages": []}, "x</s>"),
        ("{{ strftime_now('%Y') }}|{{ date_string[-4:] }}", {"messages": []}, "2023|2023"),
        ("{{ messages|tojson }}", {"messages": [{"role": "u", "content": "<é&\">"}]}, '[{"role": "u", "content": "<é&\\">"}]'),
        ("{{ {'a': [1]}|tojson(indent=1) }}", {"messages": []}, '{\n "a": [\n  1\n ]\n}'),
        ("{{ nothing.at.all }}|{{ 'a' + nothing }}|{{ none ~ 'b' }}", {"messages": []}, "|a|b"),
        ("{% generation %}x{% endgeneration %}", {"messages": []}, "x"),
        ("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", {"messages": []}, "01"),
        ("  {% if true %}\n  a\n  {% endif %}\n", {"messages": []}, "  a\n"),
        ("{{ color }}", {"messages": [], "chat_template_kwargs": {"color": "red"}}, "red"),
        ("{{ messages|length }}", {"messages": [USER], "chat_template_kwargs": {"messages": []}}, "1"),
        ("{{ reasoning_strength }}", {"messages": [], "reasoning_effort": "low"}, "low"),
        ("{{ drop_thinking }}", {"messages": [], "chat_template_kwargs": {"preserve_reasoning": True}}, "False"),
        ("<think>{{ enable_thinking }}", {"messages": []}, "<think>True"),
        ("<think>{{ enable_thinking }}", {"messages": [], "reasoning_effort": "none"}, "<think>False"),
        ("<think>{{ enable_thinking }}", {"messages": [], "chat_template_kwargs": {"enable_thinking": False}}, "<think>False"),
        ("{{ enable_thinking }}", {"messages": []}, "False"),
        ("{{ tools is defined }}", {"messages": [], "tools": []}, "False"),
        ("{{ tools[0].function.name }}", {"messages": [], "tools": [TOOL]}, "f"),
    ],
)  # fmt: skip
def test_what_a_template_sees(source: str, body: dict[str, Any], expected: str) -> None:
    assert render(source, body) == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (LINES, "user:a\nb\n"),
        ("{% for m in messages %}{% for p in m.content %}<{{ p.text }}>{% endfor %}{% endfor %}", "<a><b>"),
    ],
)  # fmt: skip
def test_parts_reach_only_templates_that_take_them(source: str, expected: str) -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert render(source, {"messages": [{"role": "user", "content": parts}]}) == expected


def test_a_text_becomes_a_part_where_only_parts_are_taken() -> None:
    source = "{% for m in messages %}{% for p in m.content %}<{{ p.text }}>{% endfor %}{% endfor %}"
    assert render(source) == "<Hi>"


def test_a_system_message_joins_the_next_one_where_there_is_no_such_role() -> None:
    source = "{% for m in messages if m.role != 'system' %}{{ m.content }};{% endfor %}"
    assert render(source, {"messages": [SYSTEM, USER]}) == "Be good\nHi;"
    assert render(source, {"messages": [SYSTEM]}) == ""


def test_arguments_become_objects_where_the_template_wants_them() -> None:
    source = (
        "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls %}"
        "{% for k, v in c.function.arguments.items() %}{{ k }}={{ v }}{% endfor %}{% endfor %}{% endfor %}"
    )
    call = {"type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    assert render(source, {"messages": [message, USER]}) == "a=1Hi"
    call["function"] = {"name": "f", "arguments": "{"}
    assert "arguments" in str(refusal(source, {"messages": [message, USER]}))


# ---- how an answer begins


def test_the_generation_prompt_is_what_opening_adds() -> None:
    rendered = templates().apply({"messages": [USER]}, AT_MS)
    assert rendered.generation_prompt == "<|im_start|>assistant\n"
    assert not rendered.is_continuation
    closed = templates().apply({"messages": [USER], "add_generation_prompt": False}, AT_MS)
    assert closed.prompt + rendered.generation_prompt == rendered.prompt


@pytest.mark.parametrize(
    "extra", [{}, {"continue_final_message": True, "add_generation_prompt": False}]
)
def test_a_last_assistant_message_is_continued(extra: dict[str, Any]) -> None:
    rendered = templates().apply({"messages": [USER, ANSWER], **extra}, AT_MS)
    assert rendered.prompt.endswith("Hi<|im_end|>\n<|im_start|>assistant\nWell, ")
    assert rendered.is_continuation


def test_variables_of_the_setting_give_way_to_those_of_the_request() -> None:
    both = templates("{{ a }} {{ b }}", kwargs={"a": 1, "b": 2})
    body: dict[str, Any] = {"messages": [USER]}
    assert both.apply(body, 0).prompt == "1 2"
    assert both.apply(body | {"chat_template_kwargs": {"b": 3}}, 0).prompt == "1 3"
    assert both.digest != templates("{{ a }} {{ b }}").digest
    with pytest.raises(RequestError, match="chat_template_kwargs"):
        both.apply(body | {"chat_template_kwargs": 1}, 0)


def test_parts_of_an_answer_that_goes_on_are_paragraphs() -> None:
    parts = [{"type": "text", "text": "Wh"}, {"type": "text", "text": "ill"}]
    body = {"messages": [USER, {"role": "assistant", "content": parts}]}
    assert templates().apply(body, 0).prompt.endswith("assistant\nWh\n\nill")


def test_it_is_a_full_turn_when_prefilling_is_off() -> None:
    whole = templates(prefill_assistant=False)
    prompt = whole.apply({"messages": [USER, ANSWER]}, AT_MS).prompt
    assert prompt.endswith("Well, <|im_end|>\n<|im_start|>assistant\n")


def test_thoughts_are_closed_before_a_continued_answer() -> None:
    thought = {"role": "assistant", "content": "", "reasoning_content": "Hm"}
    assert render(QWEN_LIKE, {"messages": [USER, ANSWER]}).endswith(
        "[assistant]\n<think>\n\n</think>\n\nWell, "
    )
    assert render(QWEN_LIKE, {"messages": [USER, thought]}).endswith("[assistant]\n<think>\nHm")


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"messages": [USER, ANSWER, ANSWER]}, "messages"),
        ({"messages": [USER], "continue_final_message": True}, "continue_final_message"),
        ({"messages": [ANSWER | {"tool_calls": [{"type": "function", "function": {"name": "f", "arguments": "{}"}}]}]}, "messages"),
        ({}, "messages"),
        ({"messages": None}, "messages"),
        ({"messages": "x"}, "messages"),
        ({"messages": [123]}, "messages"),
        ({"messages": [{}]}, "messages"),
        ({"messages": [{"role": 123}]}, "messages"),
        ({"messages": [{"role": "user"}]}, "messages"),
        ({"messages": [{"role": "assistant"}]}, "messages"),
        ({"messages": [{"role": "system", "content": 123}]}, "messages"),
        ({"messages": [{"role": "user", "content": [5]}]}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages"),
        ({"messages": [USER | {"name": 5}]}, "messages"),
        ({"messages": [ANSWER | {"tool_calls": 5}]}, "messages"),
        ({"messages": [ANSWER | {"tool_calls": [{"type": "function"}]}]}, "messages"),
        ({"messages": [USER], "tools": 5}, "tools"),
        ({"messages": [USER], "tools": [{}]}, "tools"),
        ({"messages": [USER], "tools": [{"type": "function", "function": {}}]}, "tools"),
        ({"messages": [USER], "tool_choice": "perhaps"}, "tool_choice"),
        ({"messages": [USER], "add_generation_prompt": 5}, "add_generation_prompt"),
        ({"messages": [USER], "chat_template_kwargs": 5}, "chat_template_kwargs"),
        ({"messages": [USER], "chat_template_kwargs": {"enable_thinking": "x"}}, "enable_thinking"),
    ],
)  # fmt: skip
def test_what_is_no_chat_is_refused(body: dict[str, Any], param: str) -> None:
    assert refusal(CHATML, body or {"other": 1}).problem.param == param


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("source", [CHATML, QWEN_LIKE, "{{ messages|tojson }}{{ tools|tojson }}"])
def test_deep_nesting_is_rendered_or_refused(source: str) -> None:
    deep = nested(1000)
    call = {"type": "function", "function": {"name": "f", "arguments": deep}}
    tool = {"type": "function", "function": {"name": "f", "parameters": {"a": deep}}}
    statuses: list[int] = []
    for body in (
        {"messages": [ANSWER | {"tool_calls": [call]}, USER]},
        {"messages": [USER], "tools": [tool]},
    ):
        try:
            statuses.append(200 if render(source, body) else 500)
        except RequestError as error:
            statuses.append(error.problem.status)
    assert set(statuses) <= {200, 400}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3)
    ),
    max_leaves=6,
)
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "role": st.sampled_from(["system", "user", "assistant", "tool", "developer", "x"]) | JSON,
            "content": st.text(max_size=9) | JSON | st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": st.text(max_size=5) | JSON})),
            "tool_calls": JSON | st.lists(st.fixed_dictionaries({"type": st.just("function"), "function": JSON})),
            "reasoning_content": JSON,
            "name": JSON,
        },
    ),
    max_size=4,
)  # fmt: skip
BODIES = st.fixed_dictionaries(
    {"messages": MESSAGES},
    optional={
        "tools": JSON,
        "tool_choice": JSON,
        "add_generation_prompt": JSON,
        "continue_final_message": JSON,
        "chat_template_kwargs": JSON,
        "reasoning_effort": JSON,
    },
)
FUZZED = [templates(source) for source in ("", QWEN_LIKE, "plainchat", "{{ messages|tojson }}")]


@given(BODIES)
def test_any_chat_is_rendered_or_refused(body: dict[str, Any]) -> None:
    for each in FUZZED:
        status = 200
        try:
            each.apply(body, AT_MS)
        except RequestError as error:
            status = error.problem.status
        assert status in (200, 400)


# ---- what templates can do


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (
            LINES,
            Caps(
                supports_tools=False, supports_tool_calls=False, supports_parallel_tool_calls=False
            ),
        ),
        ("{{ tools|tojson }}", Caps(supports_tool_calls=False, supports_parallel_tool_calls=False, supports_system_role=False)),
        (
            "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls %}{{ c.function.arguments|tojson }}"
            "{% endfor %}{% endfor %}",
            Caps(supports_tools=False, supports_object_arguments=True),
        ),
        (
            "{% for m in messages %}{{ m.content }}{{ m.reasoning_content }}{{ reasoning_effort }}{% endfor %}",
            Caps(
                supports_tools=False, supports_tool_calls=False, supports_parallel_tool_calls=False,
                supports_preserve_reasoning=True, supports_reasoning_effort=True,
            ),
        ),
        (
            "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}"
            "{% for p in m.content %}{{ p.text }}{% endfor %}{% endif %}{% endfor %}",
            Caps(
                supports_tools=False, supports_tool_calls=False, supports_parallel_tool_calls=False,
                supports_typed_content=True,
            ),
        ),
    ],
)  # fmt: skip
def test_capabilities(source: str, expected: Caps) -> None:
    assert probe(source) == expected


def test_capabilities_of_a_template_that_refuses_everything() -> None:
    caps = probe("{{ raise_exception('no') }}")
    assert not caps.supports_string_content
    assert not caps.supports_tools
