"""How deltas become numbered blocks, and what two dialects make of them."""

import json
from collections.abc import Sequence

import pytest

from schemas.events import Event
from services.streams.projections import anthropic, projection_for
from services.streams.projections.blocks import Block, Blocks, Kind, Step
from services.streams.projections.context import Context
from services.streams.projections.message import CALLS, CONTENT, THOUGHTS, CallHead, Delta
from tests.golden import cases


class Scripted:
    """Gives the same deltas for the first text, whatever it says."""

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
    events = cases.body("anthropic.messages")
    requested = events[0]
    assert isinstance(requested, cases.Requested)
    projection = projection_for(requested)
    for event in events:
        projection.apply(event)
    message = json.loads(projection.result().body)
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
