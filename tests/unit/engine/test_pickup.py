"""What becomes of a delivered task, and the job made of a log."""

import msgspec
import pytest

from schemas.events import Cancelled, ChoiceEnd, Event, Released, Timings, Tokens
from schemas.generation import Generation, apply_entry, collect
from schemas.params import RANDOM_SEED, Params, Sampling
from services.engine.jobs import build_admit, draw_seeds
from services.engine.pickup import Pickup, decide
from tests.support import events

NOW_MS = events.CREATED_AT_MS + 1000
COMPAT = events.started().compat
OTHER = msgspec.structs.replace(COMPAT, model="another")


def verdict(
    *log: Event, compat: object = COMPAT, n_delivered: int = 1, now_ms: int = NOW_MS
) -> Pickup:
    return decide(
        apply_entry(Generation(), len(log), log),
        engine="me",
        compat=compat,  # type: ignore[arg-type]
        n_delivered=n_delivered,
        now_ms=now_ms,
        accept_until_ms=events.CREATED_AT_MS + 30_000,
    )


REQUESTED = events.requested("g")


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        ((), Pickup.LATER),
        ((REQUESTED,), Pickup.RUN),
        ((REQUESTED, Cancelled(by="gateway", reason="stopped")), Pickup.FORGET),
        ((REQUESTED, events.claimed(engine="me")), Pickup.RUN),
        ((REQUESTED, events.claimed(engine="she")), Pickup.WATCH),
        (
            (REQUESTED, events.claimed(engine="she"), Released(attempt=1, reason="drain")),
            Pickup.RUN,
        ),
        ((REQUESTED, *[events.claimed(i, "me") for i in (1, 2, 3)]), Pickup.POISON),
    ],
)
def test_the_log_decides(log: tuple[Event, ...], expected: Pickup) -> None:
    assert verdict(*log) is expected


def test_time_decides() -> None:
    assert verdict(now_ms=events.CREATED_AT_MS + 31_000) is Pickup.ABANDONED
    assert verdict(REQUESTED, now_ms=REQUESTED.deadline_at_ms + 1) is Pickup.EXPIRED


def test_only_an_equal_engine_continues() -> None:
    log = (REQUESTED, events.claimed(engine="me"), events.started())
    assert verdict(*log) is Pickup.RUN
    assert verdict(*log, compat=OTHER) is Pickup.LATER
    assert verdict(*log, compat=OTHER, n_delivered=9) is Pickup.FOREIGN


def test_seeds_count_up_per_choice_and_are_never_the_random_mark() -> None:
    fixed = Params(sampling=Sampling(seed=7))
    assert draw_seeds(fixed, 3, (0, 0, 0)) == (7, 8, 9)
    assert draw_seeds(Params(), 2, (11, 12, 13)) == (11, 12)
    assert RANDOM_SEED not in draw_seeds(Params(), 2, (11, 12))


def test_a_new_log_becomes_a_job_for_all_choices() -> None:
    requested = events.requested("g", params=Params(n_cmpl=2))
    admit = build_admit(requested, {}, (5, 6))
    assert admit is not None
    assert [(job.choice, job.seed, job.emitted) for job in admit.choices] == [
        (0, 5, ()),
        (1, 6, ()),
    ]


def test_a_begun_log_becomes_a_job_that_continues_its_open_choices() -> None:
    requested = events.requested("g", params=Params(n_cmpl=2))
    end = ChoiceEnd(choice=0, stop_type="eos", n_predicted=1, n_prompt=3, timings=Timings())
    log = (
        requested,
        events.started(n_choices=2),
        Tokens(index=0, ids=(4,), texts=("x",), end=end),
        Tokens(choice=1, index=0, ids=(5, 6), texts=("", "y"), draws=(1, 2)),
    )
    admit = build_admit(requested, collect(log), (1, 2))
    assert admit is not None
    (job,) = admit.choices
    assert (job.choice, job.seed, job.emitted, job.texts, job.draws) == (
        1,
        42,
        (5, 6),
        ("", "y"),
        (1, 2),
    )


def test_a_log_whose_choices_all_ended_needs_no_job() -> None:
    requested = events.requested("g")
    end = ChoiceEnd(choice=0, stop_type="eos", n_predicted=1, n_prompt=3, timings=Timings())
    assert build_admit(requested, collect((Tokens(index=0, end=end),)), (1,)) is None
