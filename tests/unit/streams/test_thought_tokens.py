"""How many tokens of an answer were thoughts: counted from the log, however the log was cut."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.events import Event, Tokens
from schemas.output_format import OutputFormat, to_json
from schemas.params import Output, Params
from services.streams.projections.registry import projection_for
from services.streams.projections.responses_view import response_view
from tests.golden import cases

TAGS = OutputFormat(thought_start="<think>", thought_end="</think>")
OPEN = OutputFormat(thought_end="</think>")
GIVEN = OutputFormat(thought_start="<think>", thought_end="</think>", prefix="<think>\n")
TWICE = OutputFormat(thought_start="<think>", thought_end="</think>", has_many_thoughts=True)
KEPT = OutputFormat(thought_start="<think>", thought_end="</think>", thoughts="content")

ANSWERS = [
    (TAGS, ("<think>", "a", "b", "</think>", "c"), 4),
    (TAGS, ("<think>", "", "b", "</think>", ""), 4),
    (TAGS, ("<thi", "nk>a</th", "ink>c", "d"), 3),
    (TAGS, ("c", "d"), 0),
    (TAGS, ("<think>", "a", "b"), 3),
    (OPEN, ("a", "b", "</think>", "c", "d"), 3),
    (GIVEN, ("a", "b", "</think>", "c"), 3),
    (TWICE, ("<think>", "a", "</think>", "c", "<think>", "b", "</think>", "d"), 6),
    (KEPT, ("<think>", "a", "</think>", "c"), 3),
    (None, ("<think>", "a", "</think>", "c"), 0),
]


def log_of(
    format_: OutputFormat | None,
    texts: tuple[str, ...],
    dialect: str,
    ends: list[int],
    *,
    is_streamed: bool,
) -> list[Event]:
    """ends: where one event ends and the next begins, in tokens."""
    ended = cases.end(n=len(texts), stop_type="eos")
    places = sorted({0, len(texts), *(end for end in ends if end < len(texts))})
    tokens = [
        Tokens(
            index=start,
            ids=tuple(range(start, end)),
            texts=texts[start:end],
            end=ended if end == len(texts) else None,
        )
        for start, end in pairwise(places)
    ]
    output = Output(stream=is_streamed, include_usage=True)
    data = b"" if format_ is None else to_json(format_)
    events = (cases.started(), *tokens, cases.finished())
    return cases.log(dialect, Params(output=output), *events, output_format=data)


def counted(events: list[Event]) -> int:
    """What the answer says, streamed or not."""
    projection = projection_for(events[0])  # type: ignore[arg-type]
    frames = [frame for event in events for frame in projection.apply(event)]
    if not frames:
        return _count(json.loads(projection.result().body))
    bodies = [part for frame in frames for part in frame.split(b"data: ")[1:]]
    return max(_count(json.loads(body)) for body in bodies if body.startswith(b"{"))


def _count(body: dict[str, Any]) -> int:
    usage = body.get("response", body).get("usage") or {}
    for details in ("completion_tokens_details", "output_tokens_details"):
        if details in usage:
            return next(iter(usage[details].values()))
    return -1


@pytest.mark.parametrize("dialect", ["openai.chat", "openai.responses", "anthropic.messages"])
@pytest.mark.parametrize("is_streamed", [True, False])
@given(answer=st.sampled_from(ANSWERS), ends=st.lists(st.integers(1, 8), max_size=4))
def test_thoughts_are_counted(
    dialect: str, is_streamed: bool, answer: Any, ends: list[int]
) -> None:
    format_, texts, n_thought = answer
    assert counted(log_of(format_, texts, dialect, ends, is_streamed=is_streamed)) == n_thought


def test_a_stored_response_says_the_same() -> None:
    format_, texts, n_thought = ANSWERS[0]
    events = log_of(format_, texts, "openai.responses", [], is_streamed=False)
    projection = projection_for(events[0], is_streamed=False)  # type: ignore[arg-type]
    for event in events:
        projection.apply(event)
    assert _count(response_view(projection)) == n_thought
