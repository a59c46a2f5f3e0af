"""Lifecycle decisions: values in, values out."""

import itertools
from functools import reduce

import pytest

from schemas.lifecycle import FAILED, LOADED, LOADING, UNLOADED, EnginePresence
from services.models.lifecycle import (
    PROGRESS_STEP,
    Decision,
    ModelState,
    Observation,
    Order,
    Reason,
    Verb,
    Wish,
    decide,
)

E0, E1 = "e0-key", "e1-key"


def engine(name: str, status: str, progress: float = 0.0, error: str = "") -> EnginePresence:
    return EnginePresence(
        engine=name, host="h", model_key="key", status=status, progress=progress, error=error
    )


def seen(
    *engines: EnginePresence,
    wish: Wish = Wish.LOAD,
    ours: tuple[str, ...] = (E0,),
    refusal: str = "",
) -> Observation:
    return Observation(wish=wish, engines=engines, ours=ours, refusal=refusal)


def follow(*observations: Observation) -> list[Decision]:
    """Every decision of a model that begins unloaded."""
    decisions: list[Decision] = []
    reduce(
        lambda s, o: (decisions.append(decide(s, o)), decisions[-1].state)[1],
        observations,
        ModelState(),
    )
    return decisions


def statuses(*observations: Observation) -> list[tuple[str, Reason]]:
    """The news alone: status and reason."""
    verdicts = [d.state.verdict for d in follow(*observations) if d.is_news]
    return [(verdict.status, verdict.reason) for verdict in verdicts]


def orders(*observations: Observation) -> list[Order]:
    return [order for decision in follow(*observations) for order in decision.orders]


def test_a_wanted_model_is_loading_from_the_order_on() -> None:
    (decision,) = follow(seen())
    assert decision.state.verdict.status == LOADING
    assert decision.state.verdict.reason is Reason.ORDERED
    assert decision.orders == (Order(verb=Verb.START, engine=E0),)


def test_the_way_to_loaded() -> None:
    path = statuses(seen(), seen(engine(E0, LOADING)), seen(engine(E0, LOADED)))
    assert path == [
        (LOADING, Reason.ORDERED),
        (LOADING, Reason.ENGINE_LOADING),
        (LOADED, Reason.ENGINE_LOADED),
    ]


@pytest.mark.parametrize("status", [LOADING, LOADED, FAILED])
@pytest.mark.parametrize("wish", list(Wish))
def test_deciding_again_over_the_same_is_no_news(status: str, wish: Wish) -> None:
    observation = seen(engine(E0, status), wish=wish)
    _, again = follow(observation, observation)
    assert not again.is_news
    assert again.orders == ()


def test_engines_are_ordered_once() -> None:
    wanted = (E0, E1)
    given = orders(seen(ours=wanted), seen(engine(E0, LOADING), ours=wanted), seen(ours=wanted))
    assert given == [
        Order(verb=Verb.START, engine=E0),
        Order(verb=Verb.START, engine=E1),
        Order(verb=Verb.START, engine=E0),  # lost: perhaps its host is a new one
    ]


def test_the_best_engine_speaks_for_the_model() -> None:
    path = statuses(
        seen(engine(E0, LOADED), engine(E1, LOADING)),
        seen(engine(E1, LOADED)),
        seen(engine(E0, FAILED), engine(E1, LOADING)),
        seen(engine(E0, FAILED)),
    )
    assert [status for status, _ in path] == [LOADED, LOADING, FAILED]


def test_a_lost_engine_of_a_wanted_model_means_loading() -> None:
    path = statuses(seen(engine(E0, LOADED)), seen(), seen(engine(E0, LOADING)))
    assert path[1:] == [(LOADING, Reason.ENGINE_LOST), (LOADING, Reason.ENGINE_LOADING)]


def test_an_engine_that_starts_again_before_its_loss_was_seen() -> None:
    path = statuses(seen(engine(E0, LOADED)), seen(engine(E0, LOADING)))
    assert path == [(LOADED, Reason.ENGINE_LOADED), (LOADING, Reason.ENGINE_LOADING)]


def test_a_failure_outlives_the_engine_that_reported_it() -> None:
    *_, last = follow(seen(), seen(engine(E0, FAILED, error="no memory")), seen())
    assert last.state.verdict.status == FAILED
    assert last.state.verdict.error == "no memory"
    assert not last.is_news


def test_a_failed_model_loads_again_when_its_engine_does() -> None:
    path = statuses(seen(engine(E0, FAILED)), seen(), seen(engine(E0, LOADING)))
    assert path[-1] == (LOADING, Reason.ENGINE_LOADING)


def test_a_refusal_is_a_failure_until_the_host_obeys() -> None:
    path = statuses(seen(), seen(refusal="no such program"), seen())
    assert path[1:] == [(FAILED, Reason.HOST_REFUSED), (LOADING, Reason.ORDERED)]


def test_engines_of_others_are_observed_and_never_ordered() -> None:
    observations = [
        seen(wish=Wish.OBSERVE),
        seen(engine("e-other", LOADING), wish=Wish.OBSERVE),
        seen(engine("e-other", LOADED), wish=Wish.OBSERVE),
        seen(wish=Wish.OBSERVE),
    ]
    assert statuses(*observations) == [
        (LOADING, Reason.ENGINE_LOADING),
        (LOADED, Reason.ENGINE_LOADED),
        (UNLOADED, Reason.ENGINE_LOST),
    ]
    assert orders(*observations) == []


def test_unloading_stops_our_engines_and_turns_away_at_once() -> None:
    loaded = engine(E0, LOADED)
    *_, last = follow(seen(loaded), seen(loaded, wish=Wish.UNLOAD))
    assert (last.state.verdict.status, last.state.verdict.reason) == (UNLOADED, Reason.STOPPED)
    assert last.orders == (Order(verb=Verb.STOP, engine=E0),)


def test_small_steps_of_progress_add_up() -> None:
    steps = [seen(engine(E0, LOADING, progress=n / 100)) for n in range(101)]
    told = [d.state.verdict.progress for d in follow(*steps) if d.is_news]
    assert 8 <= len(told) <= 12
    assert told == sorted(told)
    gaps = [b - a for a, b in itertools.pairwise(told)]
    assert min(gaps) >= PROGRESS_STEP


def test_absurd_progress_is_bounded() -> None:
    (high,) = follow(seen(engine(E0, LOADING, progress=7.0)))
    (low,) = follow(seen(engine(E0, LOADING, progress=-7.0)))
    assert high.state.verdict.progress == 1.0
    assert low.state.verdict.progress == 0.0


def test_a_failure_without_a_word_gets_one() -> None:
    (decision,) = follow(seen(engine(E0, FAILED)))
    assert decision.state.verdict.error
