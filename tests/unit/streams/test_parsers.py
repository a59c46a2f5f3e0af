"""Parsers: any cut gives the same message, nothing raises, and what is no call is text."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.output_format import Calls, OutputFormat, Part, Tool, from_json, to_json
from services.streams.parsers.ids import call_id
from services.streams.parsers.markers import PARTIAL, find, match_at
from tests.support.formats import (
    NAMES,
    SAMPLES,
    Message,
    Sample,
    deltas_of,
    description_of,
    message_of,
)

SNIPPETS = (
    "<think>", "</think>", "<tool_call>", "</tool_call>", "<function=weather>", "</function>", "\n", " ",
    '{"name": "weather", "arguments": ', '{"city": "x', '"}', "}}", "[", "]", "weather", "(city=", "'",
    "<parameter=city>\n", "</parameter>", "<|channel|>", "final", "<|message|>", "<|end|>", ">>>", "all\n",
    "<arg_key>city</arg_key>", "<arg_value>", '<|"|>', "[TOOL_CALLS]", "[ARGS]", "\\", "\\u00e", "é", "😀",
)  # fmt: skip


def cut(text: str, places: list[int]) -> list[str]:
    ends = sorted({min(place, len(text)) for place in places} | {0, len(text)})
    return [text[start:end] for start, end in pairwise(ends)]


def parse(sample: Sample, **options: object) -> Message:
    return message_of(deltas_of(description_of(sample, **options), [sample.text]))  # type: ignore[arg-type]


@pytest.mark.parametrize("sample", SAMPLES, ids=NAMES)
def test_what_a_model_writes_becomes_the_message(sample: Sample) -> None:
    message = parse(sample)
    assert message.content == sample.content
    assert message.thoughts == sample.thoughts
    assert message.parsed_calls == list(sample.calls)


@given(sample=st.sampled_from(SAMPLES), places=st.lists(st.integers(0, 400), max_size=30))
def test_however_it_is_cut_the_message_is_the_same(sample: Sample, places: list[int]) -> None:
    description = description_of(sample)
    whole = message_of(deltas_of(description, [sample.text]))
    assert message_of(deltas_of(description, cut(sample.text, places))) == whole
    assert message_of(deltas_of(description, sample.text)) == whole


@given(
    sample=st.sampled_from(SAMPLES),
    parts=st.lists(st.sampled_from(SNIPPETS) | st.text(max_size=5), max_size=12),
    places=st.lists(st.integers(0, 200), max_size=12),
)
def test_nothing_that_a_model_may_write_raises_or_depends_on_the_cut(
    sample: Sample, parts: list[str], places: list[int]
) -> None:
    text = "".join(parts)
    description = description_of(sample)
    whole = message_of(deltas_of(description, [text] if text else []))
    assert message_of(deltas_of(description, cut(text, places))) == whole


@given(sample=st.sampled_from(SAMPLES), n=st.integers(0, 400))
def test_arguments_that_are_cut_off_begin_valid_json(sample: Sample, n: int) -> None:
    text = sample.text[:n]
    message = message_of(deltas_of(description_of(sample), [text] if text else []))
    for place, (_, name, arguments) in enumerate(message.calls):
        assert name == sample.calls[place][0]
        assert begins_json(arguments)


def begins_json(text: str) -> bool:
    """Whether closing what is open in `text` makes JSON of it."""
    stems = ("", '"', "null", ": null", '": null')
    endings = ("", "}", "]}", "}}", "]}}")
    shown = text.rstrip().removesuffix(",")
    return any(is_json(shown + stem + ending) for stem in stems for ending in endings)


def is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>\n{"name": "nobody", "arguments": {}}\n</tool_call>',
        "<tool_call>\nI would call it\n</tool_call> now",
        '<tool_call>\n{"name": "weather"',
        '<tool_call>\n{"name": 3, "arguments": {}}\n</tool_call>',
        '<tool_call>\n{"name": "weather", "arguments": none}\n</tool_call>',
        "a < b and <tool",
    ],
)
def test_what_cannot_be_read_as_a_call_is_text(text: str) -> None:
    sample = Sample(template="hermes", text=text)
    assert parse(sample) == Message(content=text)


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("functions", "Write <function=weather> and the arguments"),
        ("tagged", "Write <tool_call>\n<function=weather> and the parameters"),
        ("recipients", "all\n>>>weather is what I see"),
        ("channels", "<|channel|>final<|message|>to=functions.weather is what I see"),
    ],
)
def test_talking_of_a_call_is_none(template: str, text: str) -> None:
    message = parse(Sample(template=template, text=text))
    assert message.calls == []
    assert message.content.endswith(text[-10:])


def test_a_call_that_breaks_off_keeps_what_was_valid() -> None:
    text = '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris" 3}}\n</tool_call>'
    message = parse(Sample(template="hermes", text=text))
    assert [(name, arguments) for _, name, arguments in message.calls] == [
        ("weather", '{"city": "Paris" ')
    ]
    assert message.content == "3}}\n</tool_call>"


def test_only_the_first_delta_of_a_call_names_it() -> None:
    sample = SAMPLES[2]
    calls = [d for d in deltas_of(description_of(sample), sample.text) if d.field == "tool_calls"]
    for number in range(2):
        own = [delta for delta in calls if delta.call == number]
        assert own[0].head is not None
        assert own[0].text == ""
        assert all(delta.head is None and delta.text for delta in own[1:])
        assert len(own) > 3


def test_ids_are_the_models_own_or_derived() -> None:
    assert [call[0] for call in parse(SAMPLES[6]).calls] == ["abcdefghi", "123456789"]
    assert [call[0] for call in parse(SAMPLES[7]).calls] == ["abc", call_id("generation/0", 1)]
    numbered = next(sample for sample in SAMPLES if sample.template == "numbered")
    assert [call[0] for call in parse(numbered).calls] == [
        "functions.weather:0",
        "functions.clock:1",
    ]


def test_derived_ids_differ_and_have_the_length_that_is_asked_for() -> None:
    ids = {call_id(seed, number) for seed in ("a/0", "a/1", "b/0") for number in range(3)}
    assert len(ids) == 9
    assert {len(found) for found in ids} == {32}
    assert len(call_id("a/0", 0, 9)) == 9
    assert call_id("a/0", 0, 9).isalnum()


THINKING = "<think>\nHm.\n</think>\n\nFine."


@pytest.mark.parametrize(
    ("reasoning_format", "is_stream", "content", "thoughts"),
    [
        ("auto", True, "Fine.", "Hm."),
        ("deepseek", False, "Fine.", "Hm."),
        ("none", True, THINKING, ""),
        ("deepseek-legacy", False, "Fine.", "Hm."),
        ("deepseek-legacy", True, THINKING, "Hm."),
    ],
)
def test_where_thoughts_go(
    reasoning_format: str, is_stream: bool, content: str, thoughts: str
) -> None:
    sample = Sample(template="hermes", text=THINKING)
    message = parse(sample, reasoning_format=reasoning_format, is_stream=is_stream)
    assert message == Message(content=content, thoughts=thoughts)


def test_thoughts_that_the_prompt_opened_are_shown_from_there_where_they_stay_in_content() -> None:
    sample = Sample(template="fenced", text="Hm.\n</think>\n\nFine.")
    message = parse(sample, reasoning_format="none")
    assert message.content == "<think>\nHm.\n</think>\n\nFine."


def test_thoughts_that_never_end_are_thoughts() -> None:
    assert parse(Sample(template="fenced", text="Hm, \n")) == Message(thoughts="Hm,")


def test_a_call_in_the_middle_of_thoughts_ends_them_where_models_write_so() -> None:
    text = "Hm.<tool_call>clock<arg_key>zone</arg_key><arg_value>UTC</arg_value></tool_call>"
    message = parse(Sample(template="keyed", text=text))
    assert message.thoughts == "Hm."
    assert message.parsed_calls == [("clock", {"zone": "UTC"})]


BEGUN = [
    {"role": "user", "content": "How?"},
    {"role": "assistant", "content": "Well, ", "reasoning_content": "Hm."},
]


@pytest.mark.parametrize("template", ["hermes", "channels", "turns", "keyed"])
def test_a_continued_answer(template: str) -> None:
    sample = Sample(template=template, text="fine.")
    asked = {"continue_final_message": True, "add_generation_prompt": False}
    description = description_of(sample, messages=BEGUN, **asked)
    streamed = message_of(deltas_of(description, ["fine."]))
    assert streamed == Message(content="fine.")
    whole = message_of(deltas_of(description, ["fine."], is_whole=True))
    assert whole == Message(content="Well, fine.", thoughts="Hm.")
    unasked = description_of(sample, messages=BEGUN)
    assert message_of(deltas_of(unasked, ["fine."])) == whole


def test_tools_that_may_not_be_called_leave_text_alone() -> None:
    sample = SAMPLES[3]
    assert parse(sample, tool_choice="none") == Message(content=sample.text)


@pytest.mark.parametrize("sample", SAMPLES, ids=NAMES)
def test_a_description_is_data(sample: Sample) -> None:
    description = description_of(sample)
    assert from_json(to_json(description)) == description


def test_markers_match_with_any_whitespace_between_their_words() -> None:
    marker = "Action:\n```json\n"
    assert match_at("Action: ```json x", 0, marker) == len("Action: ```json")
    assert match_at("Action:", 0, marker) == PARTIAL
    found = find("Action Action: ", 0, (marker,), is_closed=False)
    assert found is not None
    assert (found.start, found.end) == (7, PARTIAL)
    assert find("Action Action: ", 0, (marker,), is_closed=True) is None


def test_arguments_that_are_text_hold_an_object() -> None:
    pattern = (Part(kind="text", text="<tool_call>"), Part(kind="object"))
    calls = Calls(
        patterns=(pattern,),
        name_keys=("function", "name"),
        arguments_keys=("function", "arguments"),
    )
    description = OutputFormat(calls=calls, tools=(Tool(name="f"),))
    text = '<tool_call>{"type": "function", "function": {"name": "f", "arguments": "{\\"a\\": 1}"}}'
    assert message_of(deltas_of(description, [text])).parsed_calls == [("f", {"a": 1})]
