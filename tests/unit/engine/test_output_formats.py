"""What templates say of their models, and the grammars that are made of it."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import RequestError
from schemas.output_format import Calls, OutputFormat, Part, Shape, from_json
from schemas.params import Output, Params, Sampling
from services.engine.grammar.gbnf import parse
from services.engine.grammar.json_schema import to_grammar
from services.engine.grammar.rules import Rules
from services.engine.output_format.answer import with_output_format
from services.engine.output_format.grammar import (
    AnswerGrammar,
    json_answer,
    lazy_calls,
    required_calls,
)
from services.engine.output_format.history import with_ids, with_thoughts
from services.engine.output_format.request import prefix_in, shape_of, without_names
from services.engine.output_format.segments import common_prefix, common_suffix, split
from services.engine.output_format.texts import until
from tests.support.formats import (
    FOLDER,
    NAMES,
    SAMPLES,
    TOOLS,
    Sample,
    chat_of,
    description_of,
    rendered,
    templates_of,
)
from tests.support.grammars import matches
from tests.support.templates import AT_MS

CALLING = [(sample, name) for sample, name in zip(SAMPLES, NAMES, strict=True) if sample.calls]
WITHOUT_LAZY = {"llama3"}
"""Nothing shows where a call begins."""
UNUSUAL = ("<function=clock>\n", "  a\n</parameter>b", " to=functions.clock<")
"""What models write, too, but no grammar makes them write."""


def known_of(name: str) -> OutputFormat:
    sample = Sample(template=name, text="", has_tools=False)
    known = rendered(sample).known
    assert known is not None
    return known


def test_every_template_is_described() -> None:
    names = {path.stem for path in FOLDER.glob("*.jinja")}
    assert names == {sample.template for sample in SAMPLES}
    without_calls = {name for name in names if known_of(name).calls is None}
    assert without_calls == {"plain"}


def test_a_description_is_made_of_what_is_rendered() -> None:
    known = known_of("hermes")
    assert (known.thought_start, known.thought_end) == ("<think>\n", "\n</think>\n\n")
    assert known.calls is not None
    assert known.calls.patterns == (
        (
            Part(kind="text", text="<tool_call>\n"),
            Part(kind="object"),
            Part(kind="text", text="\n</tool_call>"),
        ),
    )
    assert (known.calls.name_keys, known.calls.arguments_keys) == (("name",), ("arguments",))
    assert known.calls.is_parallel


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("llama3", {"is_parallel": False, "arguments_keys": ("parameters",), "start": ""}),
        ("nemo", {"has_late_id": True, "id_chars": 9, "start": "[TOOL_CALLS]["}),
        ("command_r", {"id_is_number": True, "id_keys": ("tool_call_id",)}),
        ("keys", {"name_keys": (), "end": "]<|tools_suffix|>"}),
        ("quoted", {"notation": "quoted", "quote": '<|"|>'}),
        ("fenced", {"start": "<｜tool▁calls▁begin｜>", "end": "<｜tool▁calls▁end｜>"}),
        ("functions", {"cuts_thoughts": False}),
        ("keyed", {"cuts_thoughts": True}),
    ],
)
def test_how_calls_are_written(name: str, expected: dict[str, Any]) -> None:
    calls = known_of(name).calls
    assert calls is not None
    assert {key: getattr(calls, key) for key in expected} == expected


def test_types_of_parameters_are_words_of_the_model() -> None:
    calls = known_of("dsml").calls
    assert calls is not None
    assert calls.parameters is not None
    assert calls.parameters.types["string"] == "true"
    assert calls.parameters.types["object"] == "false"


# ---- grammars


def lazy_of(sample: Sample, *, is_parallel: bool = True) -> AnswerGrammar | None:
    tools = chat_of(rendered(sample)).tools
    return lazy_calls(description_of(sample), tools, is_parallel=is_parallel)


@pytest.mark.parametrize(("sample", "name"), CALLING, ids=[name for _, name in CALLING])
def test_a_lazy_grammar_takes_calls_from_its_trigger_on(sample: Sample, name: str) -> None:
    found = lazy_of(sample)
    if sample.template in WITHOUT_LAZY or UNUSUAL[1] in sample.text:
        assert (found is None) == (sample.template in WITHOUT_LAZY)
        return
    assert found is not None, name
    assert found.is_lazy
    words = [trigger.value for trigger in found.triggers if trigger.kind == "word"]
    places = [sample.text.find(word) for word in words if word in sample.text]
    begun = [trigger for trigger in found.triggers if trigger.kind == "pattern"]
    start = 0 if begun and not sample.text.startswith("all") else min(places)
    assert matches(found.text, sample.text[start:])


@pytest.mark.parametrize(("sample", "name"), CALLING, ids=[name for _, name in CALLING])
def test_a_call_that_must_come_comes_after_thoughts(sample: Sample, name: str) -> None:
    text = sample.text
    if sample.content or text.startswith(UNUSUAL) or UNUSUAL[1] in text:
        return
    found = required_calls(description_of(sample), TOOLS, is_parallel=True)
    assert not found.is_lazy
    assert matches(found.text, text), name
    assert not matches(found.text, "Fine.")


def test_one_call_where_several_are_not_wanted() -> None:
    found = required_calls(description_of(SAMPLES[2]), TOOLS, is_parallel=False)
    one = '<tool_call>\n{"name": "ping", "arguments": {}}\n</tool_call>'
    assert matches(found.text, one)
    assert not matches(found.text, f"{one}\n{one}")


def test_arguments_follow_the_schema() -> None:
    found = required_calls(description_of(SAMPLES[3]), TOOLS, is_parallel=False)
    call = '<tool_call>\n{"name": "clock", "arguments": {"zone": "%s"}}\n</tool_call>'
    assert matches(found.text, call % "CET")
    assert not matches(found.text, call % "Mars")
    assert not matches(found.text, call.replace("clock", "nobody") % "CET")


def test_parameters_in_tags_may_come_in_any_order() -> None:
    tool = {
        "type": "function",
        "function": {
            "name": "f",
            "parameters": {
                "type": "object",
                "properties": {key: {"type": "string"} for key in "abc"},
                "required": ["a", "b"],
            },
        },
    }
    found = required_calls(
        description_of(Sample(template="tagged", text="")), [tool], is_parallel=False
    )
    call = "<tool_call>\n<function=f>\n%s</function>\n</tool_call>"
    a, b, c = (f"<parameter={key}>\nx\n</parameter>\n" for key in "abc")
    assert all(matches(found.text, call % text) for text in (a + b, b + a, a + b + c))
    assert not any(matches(found.text, call % text) for text in (a, c, a + c))


def test_what_no_grammar_can_say_of_arguments_is_left_to_the_model() -> None:
    tool = {
        "type": "function",
        "function": {
            "name": "f",
            "parameters": {"type": "object", "properties": {"a": {"multipleOf": 7}}},
        },
    }
    found = required_calls(description_of(SAMPLES[3]), [tool], is_parallel=False)
    assert matches(found.text, '<tool_call>\n{"name": "f", "arguments": {"a": 7}}\n</tool_call>')


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("hermes", "<think>\nHm.\n</think>\n\n42"),
        ("hermes", "42"),
        ("fenced", "Hm.</think>42"),
        ("command_r", "<|START_THINKING|>Hm.<|END_THINKING|><|START_RESPONSE|>42<|END_RESPONSE|>"),
        (
            "channels",
            "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final <|constrain|>json"
            "<|message|>42",
        ),
    ],
)
def test_an_answer_by_a_schema_may_have_thoughts_before_it(template: str, text: str) -> None:
    description = description_of(Sample(template=template, text=text, has_tools=False))
    found = json_answer(description, to_grammar({"const": 42}))
    assert matches(found.text, text)
    assert not matches(found.text, text.replace("42", "43"))


@pytest.mark.parametrize("stop", ["</think>", "aab", "ab]"])
def test_text_until_a_marker(stop: str) -> None:
    rules = Rules()
    rules.reserve("root")
    rules.set("root", f'{until(rules, stop)} "{stop}"')
    for text in ("", "a", "aa", "<", "</thin", "</</think", "ab", "é\n"):
        assert matches(rules.text(), text + stop) == (stop not in (text + stop)[:-1])
    assert not matches(rules.text(), f"x{stop}y{stop}")


# ---- what goes into the log


class FakeWords:
    """Knows three control tokens; the last ends a generation."""

    eog = (9,)

    def piece(self, token: int, *, special: bool = True) -> bytes:
        assert special
        return {9: b"<|bye|>"}[token]

    _ids = {"<tool_call>": (7,), "</tool_call>": (8,), "<think>": (9,)}  # noqa: RUF012

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> tuple[int, ...]:
        assert parse_special
        assert not add_special
        return self._ids.get(text, (1, 2))


def prepared(sample: Sample, params: Params | None = None, **body: object) -> tuple[Params, bytes]:
    found = rendered(sample, **body)
    return with_output_format(params or Params(), found, dict(body), FakeWords())


def test_calls_that_may_come_wake_a_lazy_grammar() -> None:
    params, output_format = prepared(SAMPLES[3])
    assert output_format
    assert params.sampling.grammar_lazy
    assert [(t.kind, t.token) for t in params.sampling.grammar_triggers] == [("token", 7)]
    assert params.sampling.preserved_tokens == (7, 8)
    assert params.output.parse_tool_calls


def test_what_ends_a_generation_is_no_part_of_a_call() -> None:
    calls = Calls(
        end="]<|bye|>",
        patterns=((Part(kind="name"), Part(kind="text", text="</x><|bye|>")),),
    )
    kept = without_names(OutputFormat(calls=calls), ("<|bye|>",)).calls
    assert kept is not None
    assert (kept.end, kept.patterns[0][-1].text) == ("]", "</x>")
    same = OutputFormat(calls=calls)
    assert without_names(same, ("<|other|>",)) is same


def test_a_named_call_is_the_only_one() -> None:
    named = {"type": "function", "function": {"name": "ping"}}
    params, _ = prepared(SAMPLES[3], tool_choice=named)
    assert not params.sampling.grammar_lazy
    assert '\\"ping\\"' in params.sampling.grammar
    assert '\\"clock\\"' not in params.sampling.grammar


@pytest.mark.parametrize("function", [{"name": "nobody"}, {}, 1, None])
def test_a_named_call_must_be_offered(function: object) -> None:
    with pytest.raises(RequestError, match="must name one of the functions"):
        rendered(SAMPLES[3], tool_choice={"type": "function", "function": function})


def test_an_answer_by_a_schema_is_no_call() -> None:
    asked = {"json_schema": {"const": 42}}
    params = Params(sampling=Sampling(grammar=to_grammar(asked["json_schema"])))
    found, _ = prepared(SAMPLES[3], params, tool_choice="required", **asked)
    assert matches(found.sampling.grammar, "<think>Hm.</think>42")
    assert not found.output.parse_tool_calls


def test_plain_chats_leave_nothing_in_the_log() -> None:
    params, output_format = prepared(Sample(template="plain", text="", has_tools=False))
    assert output_format == b""
    assert params.sampling == Sampling()
    assert params.output == Output(
        chat_format="peg-native", generation_prompt="<start_of_turn>model\n"
    )


def test_a_model_that_knows_no_tools_is_told_of_them() -> None:
    sample = Sample(template="plain", text="")
    assert '"name": "weather"' in rendered(sample).prompt
    assert '"name": "weather"' not in rendered(sample, tool_choice="none").prompt
    system = {"role": "system", "content": "Be good"}
    prompt = rendered(sample, messages=[system, {"role": "user", "content": "Hi"}]).prompt
    assert prompt.startswith("<start_of_turn>system\nBe good\n\n")


# ---- earlier turns


def call(call_id: str | None) -> dict[str, Any]:
    function = {"name": "ping", "arguments": "{}"}
    return {"type": "function", "function": function, **({"id": call_id} if call_id else {})}


@pytest.mark.parametrize(
    "ids", [(None, None), ("call_0123456789", "call_9876543210"), ("abcdefghi", None)]
)
def test_ids_of_any_client_fit_the_template(ids: tuple[str | None, ...]) -> None:
    results = [{"role": "tool", "content": "pong", "tool_call_id": own} for own in ids]
    messages = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": None, "tool_calls": [call(own) for own in ids]},
        *results,
    ]
    prompt = templates_of("nemo").apply({"messages": messages, "tools": TOOLS}, AT_MS).prompt
    assert prompt.count("[TOOL_RESULTS]pong") == 2
    shaped = with_ids([{**m, "content": ""} for m in messages], 9)
    given = [own["id"] for own in shaped[1]["tool_calls"]]
    assert given == [result["tool_call_id"] for result in shaped[2:]]
    assert all(len(own) == 9 for own in given)


def test_results_may_come_in_parts() -> None:
    parts = [{"type": "text", "text": "po"}, {"type": "text", "text": "ng"}]
    messages = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": None, "tool_calls": [call("abcdefghi")]},
        {"role": "tool", "content": parts, "tool_call_id": "abcdefghi"},
    ]
    prompt = templates_of("nemo").apply({"messages": messages}, AT_MS).prompt
    assert "[TOOL_RESULTS]po\nng" in prompt


@pytest.mark.parametrize("template", ["hermes", "pythonic", "turns", "channels"])
def test_thoughts_of_earlier_turns_go_where_the_template_reads_them(template: str) -> None:
    answer = {
        "role": "assistant",
        "content": "",
        "reasoning_content": "Hm.",
        "tool_calls": [call("abcdefghi")],
    }
    body = {"messages": [{"role": "user", "content": "Hi"}, answer], "add_generation_prompt": False}
    templates = templates_of(template)
    prompt = templates.apply(
        body | {"messages": [*body["messages"], {"role": "user", "content": "?"}]}, AT_MS
    ).prompt
    assert "Hm." in prompt


def test_thoughts_as_parts_of_the_content() -> None:
    answer = {"role": "assistant", "content": "Fine.", "reasoning_content": "Hm."}
    (moved,) = with_thoughts([answer], "parts")
    assert moved["content"] == [
        {"type": "thinking", "thinking": "Hm."},
        {"type": "text", "text": "Fine."},
    ]
    assert "reasoning_content" not in moved


# ---- small parts


def test_comparisons_end_between_tags() -> None:
    assert split("<a b>\n[X] w.") == ["<a b>", "\n", "[X]", " ", "w", "."]
    assert common_prefix("<end_a>", "<end_b>") == ""
    assert common_suffix("x</a>\n", "y</a>\n") == "</a>\n"


def test_the_prefix_begins_at_the_first_marker() -> None:
    known = OutputFormat(
        thought_start="<think>\n", thought_end="</think>", content_starts=(">>>all\n",)
    )
    assert prefix_in(known, "<a><think>\n") == "<think>\n"
    assert prefix_in(known, "<a></think>") == "</think>"
    assert prefix_in(known, "<a>\n>>>") == ">>>"
    assert prefix_in(known, "<a>\n") == ""
    recipient = Calls(patterns=((Part(kind="text", text=" to="), Part(kind="name")),))
    assert prefix_in(OutputFormat(calls=recipient), "<a>assistant") == ""


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "string"}, Shape(types=("string",))),
        ({"type": ["integer", "null"]}, Shape(types=("integer", "null"))),
        ({"enum": ["a", 1]}, Shape(types=("string", "integer"))),
        ({"const": True}, Shape(types=("boolean",))),
        ({"anyOf": [{"type": "string"}, {"type": "number"}]}, Shape(types=("string", "number"))),
        ({"anyOf": [{"type": "string"}, {}]}, Shape()),
        ({"$ref": "#/$defs/x"}, Shape(types=("array",), items=Shape(types=("null",)))),
        ({"$ref": "#/nowhere"}, Shape()),
        (True, Shape()),
    ],
)
def test_shapes_of_values(schema: object, expected: Shape) -> None:
    root = {"$defs": {"x": {"type": "array", "items": {"type": "null"}}}}
    assert shape_of(schema, root) == expected


def test_a_schema_that_refers_to_itself_has_a_shape() -> None:
    root: dict[str, Any] = {"properties": {"next": {"$ref": "#"}}}
    assert json.dumps(root)
    assert shape_of(root, root).properties["next"].types == ("object",)


# ---- what clients may send as a schema

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=5)
    | st.sampled_from(["object", "string", "array"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "type",
                    "properties",
                    "required",
                    "items",
                    "enum",
                    "const",
                    "anyOf",
                    "$ref",
                    "a",
                    "é\n",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(
    template=st.sampled_from(
        ["hermes", "tagged", "quoted", "elements", "pythonic", "dsml", "keys"]
    ),
    parameters=JSON,
    choice=st.sampled_from(["auto", "required"]),
)
def test_any_parameters_give_a_grammar_or_a_refusal(
    template: str, parameters: object, choice: str
) -> None:
    tool = {"type": "function", "function": {"name": "f-1", "parameters": parameters}}
    found = rendered(Sample(template=template, text=""), tools=[tool], tool_choice=choice)
    with suppress(RequestError):
        params, output_format = with_output_format(Params(), found, {}, FakeWords())
        assert from_json(output_format).tools[0].name == "f-1"
        if params.sampling.grammar:
            parse(params.sampling.grammar)
