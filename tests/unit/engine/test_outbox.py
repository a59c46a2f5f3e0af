"""Merging of outputs into events."""

from hypothesis import given
from hypothesis import strategies as st

from schemas.events import ChoiceEnd, Timings, Tokens
from schemas.generation import collect
from services.engine.outbox import Outbox, finished_event
from services.engine.protocol import Emitted, Ended, PromptProgress


def emitted(index: int, choice: int = 0, draws: int = 1) -> Emitted:
    return Emitted(
        generation_id="g",
        choice=choice,
        index=index,
        id=100 + index,
        text=f"{index}.",
        draws=draws,
        elapsed_us=index * 10,
    )


def ended(choice: int = 0, n_predicted: int = 3, n_prompt: int = 5) -> Ended:
    end = ChoiceEnd(
        choice=choice,
        stop_type="eos",
        n_predicted=n_predicted,
        n_prompt=n_prompt,
        timings=Timings(),
    )
    return Ended(generation_id="g", end=end)


def test_tokens_between_two_drains_become_one_event() -> None:
    outbox = Outbox({0: 2}, frozenset({0}))
    outbox.add_token(emitted(2))
    outbox.add_token(emitted(3))
    assert outbox.drain() == [Tokens(index=2, ids=(102, 103), texts=("2.", "3."), elapsed_us=30)]
    assert outbox.is_empty
    assert outbox.drain() == []


def test_draws_are_logged_only_where_one_is_not_one() -> None:
    outbox = Outbox({}, frozenset({0}))
    outbox.add_token(emitted(0, draws=1))
    outbox.add_token(emitted(1, draws=2))
    (event,) = outbox.drain()
    assert isinstance(event, Tokens)
    assert event.draws == (1, 2)


def test_the_end_of_a_choice_stands_on_its_last_tokens() -> None:
    outbox = Outbox({}, frozenset({0, 1}))
    outbox.add_token(emitted(0))
    outbox.add_end(ended(0))
    assert not outbox.is_complete
    outbox.add_end(ended(1))
    assert outbox.is_complete
    first, second = outbox.drain()
    assert isinstance(first, Tokens)
    assert isinstance(second, Tokens)
    assert first.ids == (100,)
    assert first.end == ended(0).end
    assert second == Tokens(choice=1, index=0, end=ended(1).end)


def test_progress_comes_before_tokens() -> None:
    outbox = Outbox({}, frozenset({0}))
    outbox.add_token(emitted(0))
    progress = PromptProgress(
        generation_id="g", choice=0, n_total=5, n_cached=0, n_processed=5, elapsed_us=1
    )
    outbox.add_progress(progress, is_shown=True)
    assert [type(event).__name__ for event in outbox.drain()] == ["Progress", "Tokens"]


def test_a_prompt_counts_once_in_the_usage_whatever_its_choices() -> None:
    ends = {choice: ended(choice, n_predicted=4, n_prompt=10).end for choice in range(4)}
    usage = finished_event(ends, 2, 0).usage
    assert (usage.n_prompt, usage.n_predicted) == (20, 16)


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=60))
def test_wherever_it_is_drained_nothing_is_lost(steps: list[tuple[int, bool]]) -> None:
    outbox = Outbox({}, frozenset(range(3)))
    counts = [0, 0, 0]
    events: list[object] = []
    for choice, has_drain in steps:
        outbox.add_token(emitted(counts[choice], choice))
        counts[choice] += 1
        if has_drain:
            events += outbox.drain()
    events += outbox.drain()
    collected = collect(events)  # type: ignore[arg-type]
    for choice, count in enumerate(counts):
        texts = collected[choice].texts if choice in collected else []
        assert texts == [f"{i}." for i in range(count)]
