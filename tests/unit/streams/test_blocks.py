"""How deltas become numbered blocks, and what two dialects make of them."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec import structs

from schemas.errors import SERVER, Problem
from schemas.events import Cancelled, Event, Failed
from services.streams.projections import Projection, anthropic, projection_for
from services.streams.projections.blocks import Block, Blocks, Kind, Step
from services.streams.projections.context import Context
from services.streams.projections.message import CALLS, CONTENT, THOUGHTS, CallHead, Delta, Span
from services.streams.projections.responses_view import response_view
from tests.golden import cases


class Scripted:
    """Gives the same deltas for the first text, whatever it says."""

    thoughts: Sequence[Span] = ()

    def __init__(self, deltas: Sequence[Delta]) -> None:
        self._deltas = list(deltas)

    def feed(self, text: str) -> Sequence[Delta]:
        del text
        deltas, self._deltas = self._deltas, []
        return deltas

    def close(self) -> Sequence[Delta]:
        return ()


HEAD = CallHead("call_1", "ls")
DELTAS = (
    Delta(THOUGHTS, "Hm"),
    Delta(THOUGHTS, "m."),
    Delta(CONTENT, "I look."),
    Delta(CALLS, "", call=0, head=HEAD),
    Delta(CALLS, '{"path":', call=0),
    Delta(CALLS, '"."}', call=0),
    Delta(CALLS, "{}", call=1, head=CallHead("call_2", "pwd")),
    Delta(CONTENT, "Done."),
)


def test_blocks_follow_one_another() -> None:
    blocks = Blocks(Scripted(DELTAS))
    changes = [*blocks.feed("x"), *blocks.close()]
    steps = [(change.step, change.block.index) for change in changes if change.step != Step.GREW]
    opened_and_closed = [(step, index) for index in range(5) for step in (Step.OPENED, Step.CLOSED)]
    assert steps == opened_and_closed
    assert [(block.kind, block.text) for block in blocks.all] == [
        (Kind.THOUGHT, "Hmm."),
        (Kind.TEXT, "I look."),
        (Kind.CALL, '{"path":"."}'),
        (Kind.CALL, "{}"),
        (Kind.TEXT, "Done."),
    ]
    assert [block.name for block in blocks.all if block.kind is Kind.CALL] == ["ls", "pwd"]


def test_without_text_there_are_no_blocks() -> None:
    assert list(Blocks(Scripted(())).close()) == []


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Context, "new_parser", lambda _self: Scripted(DELTAS))


def frames(events: Sequence[Event], dialect: str) -> list[tuple[str, dict[str, object]]]:
    requested = events[0]
    assert isinstance(requested, cases.Requested)
    projection = projection_for(requested, dialect=dialect, is_streamed=True)
    shown = b"".join(frame for event in events for frame in projection.apply(event)).decode()
    parts = [part.split("\n") for part in shown.split("\n\n") if part.startswith("event")]
    return [(name[7:], json.loads(data[6:])) for name, data in parts]


@pytest.mark.usefixtures("scripted")
def test_anthropics_frames() -> None:
    found = frames(cases.simple("anthropic.messages"), "anthropic.messages")
    assert all(name == body["type"] for name, body in found)
    kinds = [
        body["content_block"]["type"]  # type: ignore[index]
        for name, body in found
        if name == "content_block_start"
    ]
    assert kinds == ["thinking", "text", "tool_use", "tool_use", "text"]
    deltas = [body["delta"] for name, body in found if name == "content_block_delta"]
    assert deltas == [
        {"type": "thinking_delta", "thinking": "Hm"},
        {"type": "thinking_delta", "thinking": "m."},
        {"type": "signature_delta", "signature": ""},
        {"type": "text_delta", "text": "I look."},
        {"type": "input_json_delta", "partial_json": '{"path":'},
        {"type": "input_json_delta", "partial_json": '"."}'},
        {"type": "input_json_delta", "partial_json": "{}"},
        {"type": "text_delta", "text": "Done."},
    ]
    opened = next(body for _, body in found if body.get("index") == 2)
    block = {"type": "tool_use", "id": "call_1", "name": "ls", "input": {}}
    assert opened["content_block"] == block


@pytest.mark.usefixtures("scripted")
def test_anthropics_answer() -> None:
    message = json.loads(projected(cases.body("anthropic.messages")).result().body)
    assert message["content"] == [
        {"type": "thinking", "thinking": "Hmm.", "signature": ""},
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "call_1", "name": "ls", "input": {"path": "."}},
        {"type": "tool_use", "id": "call_2", "name": "pwd", "input": {}},
        {"type": "text", "text": "Done."},
    ]
    assert message["stop_reason"] == "max_tokens"


@pytest.mark.parametrize("text", ["", "{", "[1]", '"x"', "{'a': 1}"])
def test_a_call_cut_off_has_no_input(text: str) -> None:
    block = Block(index=0, kind=Kind.CALL, call=0, parts=[text])
    assert anthropic.content_json(block)["input"] == {}


@pytest.mark.parametrize(
    ("stop_type", "word", "has_calls", "expected"),
    [
        ("eos", "", False, ("end_turn", None)),
        ("eos", "", True, ("tool_use", None)),
        ("limit", "", True, ("max_tokens", None)),
        ("word", "END", False, ("stop_sequence", "END")),
        ("word", "END", True, ("tool_use", "END")),
    ],
)
def test_why_it_stopped(
    stop_type: str, word: str, has_calls: bool, expected: tuple[str, str | None]
) -> None:
    end = cases.end(stop_type=stop_type, stopping_word=word)
    assert anthropic.stop_of(end, has_calls=has_calls) == expected


@pytest.mark.usefixtures("scripted")
def test_the_events_of_a_response() -> None:
    found = frames(cases.simple("openai.responses"), "openai.responses")
    assert [body["sequence_number"] for _, body in found] == list(range(len(found)))
    text = ["output_item.added", "content_part.added", "output_text.delta"]
    text_end = ["output_text.done", "content_part.done", "output_item.done"]
    call = ["output_item.added", "function_call_arguments.delta"]
    call_end = ["function_call_arguments.done", "output_item.done"]
    assert [name.removeprefix("response.") for name, _ in found] == [
        *("created", "in_progress"),
        *("output_item.added", "content_part.added", *["reasoning_text.delta"] * 2),
        *("reasoning_text.done", "content_part.done", "output_item.done"),
        *(text + text_end),
        *(*call, "function_call_arguments.delta", *call_end),
        *(call + call_end),
        *(text + text_end),
        "completed",
    ]
    response: Any = found[-1][1]["response"]
    done = [body["item"] for name, body in found if name == "response.output_item.done"]
    assert response["output"] == done
    assert [item["type"] for item in done] == [  # type: ignore[index]
        *("reasoning", "message", "function_call", "function_call", "message"),
    ]
    assert [item["status"] for item in done] == [*["completed"] * 4, "incomplete"]  # type: ignore[index]
    assert done[2]["arguments"] == '{"path":"."}'  # type: ignore[index]


@pytest.mark.usefixtures("scripted")
def test_a_response_that_is_not_streamed_has_the_same_items() -> None:
    streamed: Any = frames(cases.simple("openai.responses"), "openai.responses")[-1][1]
    whole = json.loads(projected(cases.body("openai.responses")).result().body)
    assert whole["output"] == streamed["response"]["output"]
    assert whole["usage"] == streamed["response"]["usage"]


def projected(events: Sequence[Event]) -> Projection:
    requested = events[0]
    assert isinstance(requested, cases.Requested)
    projection = projection_for(requested, is_streamed=False)
    for event in events:
        projection.apply(event)
    return projection


BODY = cases.body("openai.responses")
CANCELLED = Cancelled(by="gateway", reason="stopped")
FAILURE = Failed(problem=Problem(code=SERVER, message="lost"), by="engine")


@pytest.mark.parametrize(
    ("events", "status", "items"),
    [
        (BODY[:1], "queued", []),
        (BODY[:3], "in_progress", []),
        (BODY[:5], "in_progress", [("in_progress", " upon a")]),
        (BODY, "incomplete", [("incomplete", ' upon a "tïme\n')]),
        ([*BODY[:5], CANCELLED], "cancelled", [("incomplete", " upon a")]),
        ([*BODY[:1], FAILURE], "failed", []),
    ],
)
def test_a_stored_response_in_every_state(
    events: Sequence[Event], status: str, items: list[tuple[str, str]]
) -> None:
    view: Any = response_view(projected(events))
    assert view["status"] == status
    found = [(item["status"], item["content"][0]["text"]) for item in view["output"]]
    assert found == items
    assert (view["error"] is not None) == (status == "failed")
    assert (view["usage"] is not None) == (status == "incomplete")


def test_a_response_repeats_what_was_asked() -> None:
    asked = b'{"instructions":"I","metadata":{"a":"b"},"temperature":0.25,"tools":[],"store":null}'
    events = [structs.replace(BODY[0], request=asked), *BODY[1:]]
    view: Any = response_view(projected(events))
    assert (view["instructions"], view["metadata"], view["store"]) == ("I", {"a": "b"}, True)
    assert (view["temperature"], view["top_p"]) == (0.25, 0.95)


def test_a_background_response_was_queued_first() -> None:
    case = cases.simple("openai.responses")
    events = [structs.replace(case[0], request=b'{"background":true}'), *case[1:]]
    found = frames(events, "openai.responses")
    states: list[Any] = [(name, body) for name, body in found if name.count(".") == 1]
    assert [(name[9:], body["response"]["status"]) for name, body in states] == [
        ("created", "queued"),
        ("queued", "queued"),
        ("in_progress", "in_progress"),
        ("completed", "incomplete"),
    ]


@pytest.mark.parametrize("end", [CANCELLED, FAILURE])
def test_a_response_that_never_started_has_a_stream_all_the_same(end: Event) -> None:
    found = frames([cases.simple("openai.responses")[0], end], "openai.responses")
    last = "response.cancelled" if end is CANCELLED else "response.failed"
    assert [name for name, _ in found] == ["response.created", last]
