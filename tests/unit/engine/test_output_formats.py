"""What templates say of their models, and what of it goes into the log."""

import json
from typing import Any

import pytest

from schemas.errors import RequestError
from schemas.output_format import Calls, OutputFormat, Part, Shape
from schemas.params import Output, Params, Sampling
from services.engine.grammar.json_schema import to_grammar
from services.engine.output_format.answer import with_output_format
from services.engine.output_format.history import with_ids, with_thoughts
from services.engine.output_format.request import prefix_in, shape_of, without_names
from services.engine.output_format.segments import common_prefix, common_suffix, split
from tests.support.formats import (
    FOLDER,
    SAMPLES,
    TOOLS,
    FakeWords,
    Sample,
    rendered,
    templates_of,
)
from tests.support.grammars import matches
from tests.support.templates import AT_MS


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


# ---- what goes into the log


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
