"""What single families want of messages, with templates that only have the words of theirs."""

import json
from typing import Any

import pytest

from services.engine.quirks import NO_QUIRK, quirk_of
from services.engine.templates import Templates, TokenNames

LOOP = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
STEPFUN = "{# You have access to the following functions in JSONSchema format #}" + LOOP
V4 = (
    "{% set dsml_token = 'DSML' %}{# tool_calls #}"
    "{% if response_format %}{{ response_format | tojson }}{% endif %}"
    "{% for m in messages %}<{{ m.role }}>{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>"
    "{% endif %}{{ m.content }}{% endfor %}{% if add_generation_prompt %}<assistant><think>{% endif %}"
)
GEMMA = (
    "{% for m in messages %}{% if m.role != 'tool' %}<|turn>{{ m.role }}\n{{ m.content }}"
    "{% for c in m.tool_calls or [] %}{{ '<|tool_call>call:' + c.function.name }}{% endfor %}"
    "{% for r in m.tool_responses or [] %}[{{ r.name }}={{ r.response | tojson }}]{% endfor %}<turn|>\n"
    "{% endif %}{% endfor %}"
)
NEW_GEMMA = "{#- OpenAI Chat Completions: results are read from messages -#}" + GEMMA
USER = {"role": "user", "content": "hi"}


def prompt_of(source: str, messages: list[Any], **body: Any) -> str:
    templates = Templates(
        chosen=source,
        of_model={},
        tokens=TokenNames(),
        is_jinja=True,
        named=(),
        render_named=lambda _template, _pairs, _opens: None,
    )
    return templates.apply({"messages": messages, **body}, 0).prompt


def called(*names: str, content: str = "") -> dict[str, Any]:
    calls = [
        {"id": f"id_{name}", "type": "function", "function": {"name": name, "arguments": "{}"}}
        for name in names
    ]
    return {"role": "assistant", "content": content, "tool_calls": calls}


def result(name: str, content: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": f"id_{name}", "content": content}


def test_most_templates_have_none() -> None:
    assert quirk_of(LOOP) is NO_QUIRK
    assert quirk_of(f"{V4} function_calls") is NO_QUIRK, "that is V3.2"


def test_whitespace_around_texts_goes() -> None:
    parts = [{"type": "text", "text": " a "}, {"type": "text", "text": "\nb\n"}]
    messages = [{"role": "user", "content": " \n hi "}, {"role": "user", "content": parts}]
    assert prompt_of(STEPFUN, messages) == "<user>hi<user>a\nb"
    assert prompt_of(LOOP, messages).startswith("<user> \n hi <user>")


def test_results_come_in_the_order_of_their_calls() -> None:
    messages = [
        USER,
        called("one", "two"),
        result("two", "2"),
        {"role": "user", "content": "meanwhile"},
        result("one", "1"),
    ]
    found = prompt_of(V4, messages)
    assert "<tool>1<user>meanwhile<tool>2" in found
    assert "<tool>2<user>meanwhile<tool>1" in prompt_of(V4 + "{# function_calls #}", messages)


def test_a_second_round_of_calls_has_an_order_of_its_own() -> None:
    messages = [
        USER,
        *(called("one", "two"), result("two", "2"), result("one", "1")),
        *(called("two", "one"), result("one", "b"), result("two", "a")),
    ]
    assert prompt_of(V4, messages).count("<tool>1<tool>2") == 1
    assert prompt_of(V4, messages).count("<tool>a<tool>b") == 1


def test_an_answer_without_thoughts_begins_behind_them() -> None:
    begun = [USER, {"role": "assistant", "content": "Once"}]
    assert prompt_of(V4, begun).endswith("<assistant></think>Once")
    thought = [USER, {"role": "assistant", "content": "Once", "reasoning_content": "Hm"}]
    assert prompt_of(V4, thought).endswith("<assistant><think>Hm</think>Once")


def test_the_template_sees_the_schema_of_the_answer() -> None:
    schema = {"type": "object", "title": "Answer"}
    wanted = {"type": "json_schema", "json_schema": {"schema": schema}}
    found = prompt_of(V4, [USER], response_format=wanted)
    assert json.loads(found.split("<user>")[0]) == schema


def test_results_stand_inside_the_turn_that_called() -> None:
    messages = [
        USER,
        called("one", "two"),
        result("two", '{"a": [1]}'),
        result("one", "plain"),
        {"role": "assistant", "content": "Done."},
        USER,
    ]
    found = prompt_of(GEMMA, messages, add_generation_prompt=False)
    turn = '<|turn>assistant\nDone.<|tool_call>call:one<|tool_call>call:two[two={"a": [1]}][one="plain"]<turn|>\n'
    assert turn in found
    assert found.count("<|turn>") == 3
    kept = prompt_of(NEW_GEMMA, messages, add_generation_prompt=False)
    assert "Done.<turn|>" in kept, "newer templates read the messages themselves"


@pytest.mark.parametrize("source", [GEMMA, NEW_GEMMA])
def test_a_closed_turn_is_followed_by_the_models(source: str) -> None:
    assert prompt_of(source, [USER]).endswith("hi<turn|>\n<|turn>model\n")


def test_calls_without_results_and_results_without_calls() -> None:
    alone = prompt_of(
        GEMMA, [USER, called("one"), called("two"), USER], add_generation_prompt=False
    )
    assert alone.count("<|turn>assistant") == 2
    orphan = [USER, called("one"), result("one", "1"), result("other", "x")]
    assert "[id_other=" in prompt_of(GEMMA, orphan, add_generation_prompt=False)
