"""The fold over a log: what is shown when, and what does not depend on how tokens are merged."""

import itertools
import json
from collections.abc import Iterable, Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import UNAVAILABLE, Problem
from schemas.events import (
    Cancelled,
    Event,
    Failed,
    Heartbeat,
    Progress,
    Prompt,
    Requested,
    TokenProbs,
    Tokens,
)
from schemas.params import Output, Params, Sampling
from services.streams.errors import UnknownProjection
from services.streams.projections import Projection, projection_for
from services.streams.projections.shapes import LOWEST, probs_json
from tests.golden.cases import (
    CASES,
    DIALECTS,
    end,
    finished,
    log,
    requested,
    simple,
    started,
    streamed,
    token,
)


def frames_of(events: Iterable[Event]) -> list[bytes]:
    events = list(events)
    assert isinstance(events[0], Requested)
    projection = projection_for(events[0])
    return [frame for event in events for frame in projection.apply(event)]


def bodies_of(frames: Sequence[bytes]) -> list[dict[str, object]]:
    texts = [frame.partition(b"data: ")[2] for frame in frames]
    return [json.loads(text) for text in texts if text.startswith(b"{")]


def text_of(body: dict[str, object]) -> str:
    """What a frame adds to the text of its choice, in any dialect."""
    if "content" in body:
        return str(body["content"])
    if str(body.get("type")).endswith("delta"):
        delta = body["delta"]
        return delta if isinstance(delta, str) else delta.get("text", "")  # type: ignore[union-attr]
    choices = body.get("choices", [])
    assert isinstance(choices, list)
    if not choices:
        return ""
    return choices[0].get("text") or choices[0].get("delta", {}).get("content") or ""


def merged(tokens: Sequence[tuple[int, str]], cuts: set[int], with_probs: bool) -> list[Tokens]:
    """The tokens in one event per stretch between cuts; the last one ends the choice."""
    bounds = sorted({0, len(tokens), *(cut for cut in cuts if cut < len(tokens))})
    stretches = list(itertools.pairwise(bounds)) or [(0, 0)]
    return [
        Tokens(
            index=first,
            ids=tuple(number for number, _ in tokens[first:last]),
            texts=tuple(text for _, text in tokens[first:last]),
            probs=tuple(
                TokenProbs(piece=text.encode(), logprob=-1.0)
                for _, text in tokens[first:last]
                if with_probs
            ),
            end=end(n=len(tokens), tail="é") if last == len(tokens) else None,
        )
        for first, last in stretches
    ]


TOKENS = st.lists(
    st.tuples(st.integers(0, 99), st.text(st.characters(exclude_categories=["Cs"]), max_size=4)),
    max_size=12,
)


@given(
    tokens=TOKENS,
    cuts=st.sets(st.integers(1, 11)),
    dialect=st.sampled_from(DIALECTS),
    n_probs=st.sampled_from([0, 1]),
)
def test_text_does_not_depend_on_how_tokens_are_merged(
    tokens: list[tuple[int, str]], cuts: set[int], dialect: str, n_probs: int
) -> None:
    params = streamed(Sampling(n_probs=n_probs))
    events = merged(tokens, cuts, bool(n_probs))
    bodies = bodies_of(frames_of(log(dialect, params, started(), *events, finished())))
    assert "".join(map(text_of, bodies)) == "".join(text for _, text in tokens) + "é"


@given(tokens=TOKENS, cuts=st.sets(st.integers(1, 11)), n_probs=st.sampled_from([0, 1]))
def test_native_streams_show_every_token_id_once(
    tokens: list[tuple[int, str]], cuts: set[int], n_probs: int
) -> None:
    params = streamed(Sampling(n_probs=n_probs))
    events = merged(tokens, cuts, bool(n_probs))
    bodies = bodies_of(frames_of(log("native.completion", params, started(), *events, finished())))
    shown = [number for body in bodies for number in body["tokens"]]  # type: ignore[attr-defined]
    assert shown == [number for number, _ in tokens]


@given(tokens=TOKENS, cuts=st.sets(st.integers(1, 11)), dialect=st.sampled_from(DIALECTS))
def test_an_answer_does_not_depend_on_how_tokens_are_merged(
    tokens: list[tuple[int, str]], cuts: set[int], dialect: str
) -> None:
    def result(events: list[Tokens]) -> object:
        projection = run(log(dialect, Params(), started(), *events, finished()))
        return projection.result()

    assert result(merged(tokens, cuts, False)) == result(merged(tokens, set(), False))


def run(events: Iterable[Event]) -> Projection:
    events = list(events)
    assert isinstance(events[0], Requested)
    projection = projection_for(events[0])
    for event in events:
        projection.apply(event)
    return projection


def test_a_frame_is_complete_and_one_event_gives_one() -> None:
    projection = run(simple("openai.chat")[:4])
    frames = projection.apply(
        Tokens(index=1, ids=(1, 2, 3), texts=(" a", "", " b"), elapsed_us=4_000)
    )
    assert len(frames) == 1
    assert text_of(bodies_of(frames)[0]) == " a b"
    assert frames[0].startswith(b"data: ")
    assert frames[0].endswith(b"\n\n")


def test_tokens_without_text_give_no_frame() -> None:
    projection = run(simple("openai.chat")[:4])
    assert projection.apply(Tokens(index=1, ids=(1, 2), texts=("", ""))) == []


def test_headers_may_go_when_a_slot_is_taken() -> None:
    events = simple("openai.chat")
    assert not run(events[:2]).is_started
    assert run(events[:3]).is_started
    assert not run(events[:-1]).is_done
    assert run(events).is_done


def test_a_failure_before_the_start_is_no_stream() -> None:
    problem = Problem(code=UNAVAILABLE, message="later")
    failed = Failed(problem=problem, by="engine")
    early = log("openai.chat", streamed(), failed)
    assert frames_of(early) == []
    assert run(early).is_started
    assert run(early).failed_before_start == problem
    late = log("openai.chat", streamed(), started(), failed)
    assert run(late).failed_before_start is None
    assert frames_of(late) == [
        b'data: {"error":{"code":503,"message":"later","type":"unavailable_error"}}\n\n'
    ]


def test_an_answer_that_was_cancelled_is_an_error() -> None:
    cancelled = Cancelled(by="streams", reason="deleted")
    result = run(log("openai.chat", Params(), started(), token(0), cancelled)).result()
    assert result.status == 400
    assert b"cancelled (deleted)" in result.body


def test_events_that_break_the_order_do_not_show() -> None:
    good = simple("native.completion")
    zombie = Tokens(index=0, ids=(9,), texts=("zombie",))
    gap = Tokens(index=9, ids=(9,), texts=("gap",))
    assert frames_of([*good[:4], zombie, gap, *good[4:]]) == frames_of(good)


def test_nothing_is_pinged_before_the_start_or_where_no_stream_was_asked_for() -> None:
    assert frames_of(log("openai.chat", streamed(), Heartbeat())) == []
    assert frames_of(log("openai.chat", Params(), started(), Heartbeat())) == []
    assert frames_of(log("openai.chat", streamed(), started(), Heartbeat())) == [b":\n\n"]


def test_progress_shows_only_where_asked_and_not_again_when_a_later_attempt_prefills() -> None:
    def progress(is_shown: bool) -> Progress:
        return Progress(
            choice=0, n_total=2, n_cached=0, n_processed=1, elapsed_us=9, is_shown=is_shown
        )

    before = [started(), progress(False), progress(True), token(0)]
    after = [started(attempt=2), progress(True)]
    bodies = bodies_of(frames_of(log("openai.completion", streamed(), *before, *after)))
    assert ["prompt_progress" in body for body in bodies] == [True, False]


def test_timings_per_token_sum_up_over_attempts() -> None:
    params = streamed(timings_per_token=True)
    again = Tokens(index=1, ids=(5,), texts=("b",), elapsed_us=90_000)
    more = Tokens(index=2, ids=(5,), texts=("c",), elapsed_us=95_000)
    events = [started(), token(0), started(attempt=2), again, more]
    bodies = bodies_of(frames_of(log("native.completion", params, *events)))
    timings = [body["timings"] for body in bodies]
    assert [t["predicted_n"] for t in timings] == [1, 2, 3]  # type: ignore[index]
    assert [t["predicted_ms"] for t in timings] == [0.001, 0.001, 5.0]  # type: ignore[index]
    assert {t["prompt_ms"] for t in timings} == {3.555}  # type: ignore[index]


def test_an_unknown_version_is_refused_by_name() -> None:
    with pytest.raises(UnknownProjection, match=r"openai\.chat in version 99"):
        projection_for(requested("openai.chat", Params(), render=99))


def test_another_dialect_can_be_asked_for() -> None:
    first = simple("openai.chat")
    assert isinstance(first[0], Requested)
    projection = projection_for(first[0], dialect="native.completion")
    frames = [frame for event in first for frame in projection.apply(event)]
    assert frames == frames_of(simple("native.completion"))


def test_probabilities_after_sampling_have_other_names() -> None:
    shown = probs_json([TokenProbs(piece=b"\xc3", logprob=0.5)], [7], is_post=True)
    assert shown == [{"id": 7, "token": "", "bytes": [195], "prob": 0.5, "top_probs": []}]
    infinite = probs_json([TokenProbs(piece=b"a\xffb", logprob=float("-inf"))], [7], is_post=False)
    assert infinite[0]["logprob"] == LOWEST
    assert infinite[0]["token"] == "a\N{REPLACEMENT CHARACTER}b"


def test_a_stream_holds_no_text_of_its_own() -> None:
    """Frames are the only copy: a long stream costs its bytes once."""
    projection = run(CASES["simple.openai.chat"])
    assert all(choice.texts == [] for choice in projection._choices.values())


def test_verbose_is_shown_in_the_first_of_the_last_chunks() -> None:
    params = Params(output=Output(stream=True, verbose=True, include_usage=True))
    frames = frames_of(log("openai.chat", params, started(), token(0, ended=end(n=1)), finished()))
    assert ["__verbose" in body for body in bodies_of(frames)] == [False, False, True, False]


@pytest.mark.parametrize("dialect", ["openai.completion", "native.completion"])
def test_prompts_that_had_to_wait_for_a_slot(dialect: str) -> None:
    """They say for themselves what they found; who runs already is not disturbed."""
    prompts = (Prompt(ids=(1, 432), text="a"), Prompt(ids=(1, 7), text="b"))
    whole = started(n_choices=2)
    waves = [msgspec.structs.replace(whole, choices=(choice,)) for choice in whole.choices]
    tokens = [token(0), token(1), token(0, 1, end(1, n=1)), token(2, 0, end(0))]
    params = Params(sampling=Sampling(seed=7))

    def answer(events: Sequence[Event]) -> bytes:
        case = log(dialect, params, *events, finished(), prompts=prompts)
        projection = projection_for(case[0])
        for event in case:
            projection.apply(event)
        return projection.result().body

    at_once = answer([whole, *tokens])
    assert answer([waves[0], *tokens[:2], waves[1], *tokens[2:]]) == at_once
