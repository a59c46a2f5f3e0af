"""The codec of log entries and the fold of a log."""

import msgpack
import msgspec
import pytest

from schemas.errors import SchemaError
from schemas.events import (
    Cancelled,
    ChoiceEnd,
    Event,
    Finished,
    Heartbeat,
    Released,
    Timings,
    TokenProbs,
    Tokens,
    TopProb,
    Usage,
    decode_entry,
    encode_entry,
)
from schemas.generation import Generation, apply, apply_entry, collect
from tests.support import events

FINISHED = Finished(usage=Usage(n_prompt=3, n_predicted=2))
END = ChoiceEnd(choice=0, stop_type="eos", n_predicted=2, n_prompt=3, timings=Timings(n_prompt=3))


def fold(*log: Event) -> Generation:
    return apply_entry(Generation(), len(log), log)


@pytest.mark.parametrize(
    "entry",
    [
        (events.requested("g", conversation="c", priority="batch"),),
        (events.claimed(),),
        (events.started(n_choices=3),),
        (events.token(0),),
        (
            Tokens(
                choice=1,
                index=7,
                ids=(1, 2),
                texts=("", "é"),
                probs=(
                    TokenProbs(
                        piece=b"\xc3",
                        logprob=-1.5,
                        top=(TopProb(id=1, piece=b"\xc3", logprob=-1.5),),
                    ),
                ),
                draws=(2, 1),
                mu=(1.5, 2.5),
                end=END,
            ),
            FINISHED,
        ),
        (Heartbeat(elapsed_us=5), Released(attempt=1, reason="drain")),
    ],
)
def test_an_entry_comes_back_as_it_was(entry: tuple[Event, ...]) -> None:
    assert decode_entry(encode_entry(entry)) == entry


def test_unknown_fields_and_events_of_the_future_are_skipped() -> None:
    future = [{"type": "tokens", "index": 0, "ids": [4], "colour": "red"}, {"type": "dreamt"}]
    assert decode_entry(msgpack.packb(future)) == (Tokens(index=0, ids=(4,)),)


@pytest.mark.parametrize(
    "data", [b"", b"\xc1", msgpack.packb(5), msgpack.packb({"type": "tokens"})]
)
def test_what_is_no_entry_is_refused(data: bytes) -> None:
    with pytest.raises(SchemaError):
        decode_entry(data)


def test_a_log_is_open_between_requested_and_its_end() -> None:
    assert not Generation().is_open
    assert fold(events.requested("g")).is_open
    closed = fold(events.requested("g"), events.claimed(), events.token(0), FINISHED)
    assert closed.is_closed
    assert not closed.is_open
    assert closed.n_tokens == {0: 1}


def test_what_comes_after_the_end_is_counted_and_ignored() -> None:
    cancelled = Cancelled(by="gateway", reason="stopped")
    state = fold(events.requested("g"), cancelled, events.token(0), FINISHED)
    assert state.end == cancelled
    assert state.n_tokens == {}
    assert state.n_ignored == 2


def test_tokens_that_do_not_fit_are_ignored() -> None:
    state = fold(events.requested("g"), events.token(0), events.token(2), events.token(0))
    assert state.n_tokens == {0: 1}
    assert state.n_ignored == 2


def test_three_claims_without_a_token_are_poisonous() -> None:
    state = fold(events.requested("g"), events.claimed(1), events.claimed(2))
    assert not state.is_poisonous
    assert apply(state, events.claimed(3)).is_poisonous
    with_token = apply(state, events.token(0))
    assert not apply(with_token, events.claimed(3)).is_poisonous


def test_a_released_log_is_nobodys_and_its_claims_do_not_count() -> None:
    state = fold(events.requested("g"), events.claimed(1), events.claimed(2))
    state = apply(state, Released(attempt=2, reason="drain"))
    assert state.engine is None
    assert state.claims_without_token == 0


def test_a_choice_that_had_to_wait_leaves_the_times_of_others_alone() -> None:
    both = events.started(1, n_choices=2).choices
    first, second = (msgspec.structs.replace(events.started(1), choices=(c,)) for c in both)
    choices = collect(
        (
            events.requested("g"),
            first,
            Tokens(index=0, ids=(1,), texts=("a",), elapsed_us=100, prompt_us=90),
            second,
            Tokens(index=1, ids=(2,), texts=("b",), elapsed_us=250),
        )
    )
    assert (choices[0].elapsed_us, choices[0].prompt_us) == (150, 90)
    assert choices[1].start == both[1]


def test_collect_gathers_every_choice_over_all_attempts() -> None:
    log = (
        events.requested("g"),
        events.started(1, n_choices=2),
        Tokens(index=0, ids=(1,), texts=("a",), elapsed_us=100, prompt_us=90),
        Tokens(choice=1, index=0, ids=(9,), texts=("z",), draws=(2,), elapsed_us=100),
        Tokens(index=1, ids=(2,), texts=("b",), elapsed_us=250),
        events.started(2, n_choices=2),
        Tokens(index=2, ids=(3,), texts=("c",), elapsed_us=40, prompt_us=30),
        Tokens(index=3, ids=(4,), texts=("d",), elapsed_us=60, end=END),
    )
    choices = collect(log)
    assert choices[0].ids == [1, 2, 3, 4]
    assert choices[0].texts == ["a", "b", "c", "d"]
    assert choices[0].elapsed_us == 170
    assert choices[0].prompt_us == 90
    assert choices[0].end == END
    assert choices[1].ids == [9]
    assert choices[1].draws == [2]
    assert choices[1].start is not None
