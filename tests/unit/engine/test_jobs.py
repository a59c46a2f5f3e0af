"""From a log to a job: prompt pieces and context shifts are repeated as they were."""

from schemas.events import ChoiceStart, Compat, Event, Progress, Shifted, Started, Tokens
from schemas.generation import ChoiceTokens, collect
from services.engine.jobs import known_shifts, prompt_chunks

COMPAT = Compat(model="m", n_ctx=256, build="b")


def start(n_cached: int, *chunks: int) -> ChoiceStart:
    return ChoiceStart(
        choice=0, slot=0, seed=1, n_prompt=100, n_cached=n_cached, chunks=tuple(chunks)
    )


def started(attempt: int, choice: ChoiceStart) -> Started:
    return Started(attempt=attempt, compat=COMPAT, choices=(choice,))


def progress(n: int) -> Progress:
    return Progress(choice=0, n_total=100, n_cached=0, n_processed=n, elapsed_us=1)


def tokens(index: int, *ids: int) -> Tokens:
    return Tokens(index=index, ids=ids, texts=("",) * len(ids))


def chunks_of(*events: Event) -> tuple[int, ...]:
    found = collect(events)[0]
    return prompt_chunks(found, found)


def test_the_plan_is_what_happened_where_nothing_else_is_said() -> None:
    assert chunks_of(started(1, start(0, 60, 40)), tokens(0, 5)) == (60, 40)


def test_progress_says_what_became_of_the_plan() -> None:
    events = (started(1, start(20, 80)), progress(36), progress(52), progress(100), tokens(0, 5))
    assert chunks_of(*events) == (16, 16, 48)


def test_the_attempt_that_brought_the_first_token_counts() -> None:
    first = (started(1, start(0, 100)), progress(16))
    second = (started(2, start(40, 60)), progress(72), tokens(0, 5))
    third = (started(3, start(0, 100)), progress(50), tokens(1, 6))
    found = collect((*first, *second, *third))[0]
    assert (found.start, found.progress) == (start(40, 60), [72])
    assert prompt_chunks(found, found) == (32, 28)


def test_a_follower_was_decoded_as_its_leader_was() -> None:
    leader = ChoiceTokens(start=start(0, 100), progress=[30, 60])
    follower = ChoiceTokens(start=start(0, 100))
    assert prompt_chunks(follower, leader) == (30, 30, 40)
    assert prompt_chunks(ChoiceTokens(), leader) == ()


def shift(index: int) -> Shifted:
    return Shifted(choice=0, index=index, n_keep=1, n_discard=9, n_past=99)


def test_shifts_that_were_logged_ahead_of_their_tokens_are_not_known() -> None:
    found = ChoiceTokens(ids=[1] * 10, shifts=[shift(3), shift(10), shift(11), shift(10)])
    assert known_shifts(found) == (shift(3), shift(10))
