"""The reasoning budget's states; expectations follow llama.cpp's sampler of that name."""

import pytest

from schemas.params import Sampling
from services.engine.decoder.characters import is_whole
from services.engine.decoder.reasoning import Phase, ReasoningBudget, reasoning_budget

START, END, OTHER_END = (1, 2), (3,), (7, 8)
FORCED = (9, 3)
HALF, REST, WORD = 20, 21, 22
PIECES = {HALF: "é".encode()[:1], REST: "é".encode()[1:]}


def piece_of(token: int) -> bytes:
    return PIECES.get(token, b"x")


def budget(n_tokens: int | None, forced: tuple[int, ...] = FORCED) -> ReasoningBudget:
    return ReasoningBudget(
        start=START, ends=(END, OTHER_END), forced=forced, n_tokens=n_tokens, piece_of=piece_of
    )


def feed(a_budget: ReasoningBudget, *tokens: int) -> list[int | None]:
    """What was forced before each token."""
    forced: list[int | None] = []
    for token in tokens:
        forced.append(a_budget.forced)
        a_budget.accept(token)
    return forced


def test_when_the_budget_is_spent_the_end_is_forced() -> None:
    watcher = budget(2)
    assert feed(watcher, 5, 1, 2, WORD) == [None] * 4
    assert watcher.is_thinking
    assert feed(watcher, WORD, 9, 3, WORD) == [None, 9, 3, None]
    assert watcher.phase is Phase.AFTER
    assert watcher.end_met == END


def test_no_budget_at_all_forces_at_once() -> None:
    assert feed(budget(0), 1, 2, 9, 3, WORD) == [None, None, 9, 3, None]


def test_a_natural_end_forces_nothing() -> None:
    watcher = budget(3)
    assert feed(watcher, 1, 2, WORD, 7, 8, WORD, WORD) == [None] * 7
    assert watcher.end_met == OTHER_END
    assert not watcher.is_thinking


def test_the_token_that_spends_the_budget_may_be_the_end() -> None:
    assert feed(budget(1), 1, 2, 3, WORD) == [None] * 4


def test_a_character_is_completed_first() -> None:
    """A piece without a first byte never counts as complete, so the next one decides."""
    watcher = budget(1)
    assert feed(watcher, 1, 2, HALF) == [None] * 3
    assert watcher.phase is Phase.CLOSING
    assert feed(watcher, REST, WORD, 9, 3) == [None, None, 9, 3]


def test_each_block_has_its_own_budget() -> None:
    assert feed(budget(1), 1, 2, WORD, 9, 3, 1, 2, WORD, 9) == [*[None] * 3, 9, 3, *[None] * 3, 9]


def test_an_order_forces_the_end_while_it_counts() -> None:
    watcher = budget(None)
    assert not watcher.end_now()
    feed(watcher, 1, 2, *[WORD] * 100)
    assert watcher.forced is None
    assert watcher.end_now()
    assert not watcher.end_now()
    assert feed(watcher, 9, 3, WORD) == [9, 3, None]
    assert not watcher.end_now()


def test_nothing_to_force_means_nothing_is_forced() -> None:
    watcher = budget(1, forced=())
    assert feed(watcher, 1, 2, WORD, WORD, WORD) == [None] * 5
    assert watcher.phase is Phase.AFTER
    assert watcher.end_met == ()


def test_a_start_is_found_wherever_it_begins() -> None:
    watcher = budget(1)
    feed(watcher, 1, 1, 2)
    assert watcher.is_thinking


ARMED = {
    "reasoning_budget_start": START,
    "reasoning_budget_ends": (END,),
    "reasoning_budget_forced": FORCED,
}


@pytest.mark.parametrize(
    ("fields", "is_made"),
    [
        ({"reasoning_budget_tokens": 0}, True),
        ({"reasoning_control": True}, True),
        ({"grammar_lazy": True}, True),
        ({}, False),
        ({"reasoning_budget_tokens": 5, "reasoning_budget_start": ()}, False),
        ({"reasoning_budget_tokens": 5, "reasoning_budget_ends": ()}, False),
    ],
)
def test_it_is_made_where_somebody_asks_for_it(fields: dict[str, object], is_made: bool) -> None:
    sampling = Sampling(**{**ARMED, **fields})  # type: ignore[arg-type]
    assert (reasoning_budget(sampling, piece_of) is not None) == is_made


def test_what_the_template_began_counts() -> None:
    sampling = Sampling(**ARMED, reasoning_budget_tokens=2, reasoning_budget_prefill=(6, 1, 2, 5))  # type: ignore[arg-type]
    watcher = reasoning_budget(sampling, piece_of)
    assert watcher
    assert feed(watcher, WORD, 9) == [None, 9]


@pytest.mark.parametrize(
    ("piece", "expected"),
    [
        (b"", True),
        (b"a", True),
        ("é🐈".encode(), True),
        ("a🐈".encode()[:-1], False),
        ("é".encode()[:1], False),
        ("🐈".encode()[1:], False),
        ("🐈".encode()[1:2], False),
    ],
)
def test_whole_characters(piece: bytes, expected: bool) -> None:
    assert is_whole(piece) == expected
