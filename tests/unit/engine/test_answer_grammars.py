"""Grammars of answers: what models of all families write fits them, and nothing else."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import RequestError
from schemas.output_format import from_json
from schemas.params import Params
from services.engine.grammar.gbnf import parse
from services.engine.grammar.json_schema import to_grammar
from services.engine.grammar.rules import Rules
from services.engine.grammar.triggers import Watch, compile_triggers
from services.engine.output_format.answer import with_output_format
from services.engine.output_format.grammar import (
    AnswerGrammar,
    json_answer,
    lazy_calls,
    required_calls,
)
from services.engine.output_format.texts import until
from services.engine.output_format.values import listed
from tests.support.formats import (
    NAMES,
    SAMPLES,
    TOOLS,
    FakeWords,
    Sample,
    chat_of,
    description_of,
    function,
    rendered,
)
from tests.support.grammars import matches

CALLING = [(sample, name) for sample, name in zip(SAMPLES, NAMES, strict=True) if sample.calls]
UNUSUAL = ("<function=clock>\n", "  a\n</parameter>b", " to=functions.clock<")
"""What models write, too, but no grammar makes them write."""


def lazy_of(sample: Sample, *, is_parallel: bool = True) -> AnswerGrammar | None:
    tools = chat_of(rendered(sample)).tools
    return lazy_calls(description_of(sample), tools, is_parallel=is_parallel)


@pytest.mark.parametrize(("sample", "name"), CALLING, ids=[name for _, name in CALLING])
def test_a_lazy_grammar_takes_calls_from_its_trigger_on(sample: Sample, name: str) -> None:
    found = lazy_of(sample)
    if UNUSUAL[1] in sample.text:
        return
    assert found is not None, name
    assert found.is_lazy
    words = [trigger.value for trigger in found.triggers if trigger.kind == "word"]
    places = [sample.text.find(word) for word in words if word in sample.text]
    begun = [trigger for trigger in found.triggers if trigger.kind == "pattern"]
    start = 0 if begun and not sample.text.startswith("all") else min(places)
    assert matches(found.text, sample.text[start:])


@pytest.mark.parametrize(
    ("text", "begin"),
    [
        ('{"name": "weather"', 0),
        ('\n  {"name": "clock"', 3),
        ('{"name":"ping"', 0),
        ('{"name": "nobody"', None),
        ('{"city": "Paris"', None),
        ('Fine: {"name": "weather"', None),
    ],
)
def test_an_object_without_a_mark_is_a_call_once_it_names_a_tool(
    text: str, begin: int | None
) -> None:
    found = lazy_of(Sample(template="llama3", text=""))
    assert found is not None
    watch = Watch(compile_triggers(found.triggers))
    for token, char in enumerate(text[:-1]):
        assert watch.look(token, char.encode()) is None
        watch.take(token, char.encode())
    seen = watch.look(len(text), text[-1:].encode())
    assert (None if seen is None else text.encode()[begin:]) == (
        None if seen is None else b"".join(piece for _, piece in seen)
    )
    assert (seen is None) == (begin is None)


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


@pytest.mark.parametrize("template", ["quoted", "pythonic", "tagged", "hermes", "elements"])
def test_tools_of_many_parameters_keep_their_grammar_small(template: str) -> None:
    many = {f"key{number}": {"type": "string"} for number in range(100)}
    tools = [function(f"f{number}", **many) for number in range(5)]
    description = description_of(Sample(template=template, text=""), tools=tools)
    found = required_calls(description, tools, is_parallel=True)
    assert len(found.text) < 250_000
    parse(found.text)


def test_members_in_a_list() -> None:
    rules = Rules()
    rules.reserve("root")
    members = {name: rules.add(name, f'"{name}"') for name in "abc"}
    rules.set("root", listed(rules, members, frozenset("b"), '","'))
    assert all(matches(rules.text(), text) for text in ("b", "a,b", "b,c", "a,b,c"))
    assert not any(matches(rules.text(), text) for text in ("", "a", "c", "a,c", "b,a", "b,"))
    rules.set("root", listed(rules, members, frozenset(), '","'))
    assert all(matches(rules.text(), text) for text in ("", "a", "c", "a,c", "a,b,c"))
    assert not any(matches(rules.text(), text) for text in ("b,a", ",", "a,"))
