"""Where a model stands and what follows from it: a pure decision over what is observed.

Level-triggered: `decide` looks at the whole observation each time, never at a single change, so a
lost or doubled notification does no harm. It reads no clock and does nothing itself.

             engine loading          engine loaded
    unloaded ──────────────▶ loading ─────────────▶ loaded      (wanted: unloaded → loading at once)
       ▲                     ▲  │ engine failed       │ engine lost
       │ unwanted            │  ▼                     │
       └───────────────── failed ◀── host refused     └──▶ loading (wanted) or unloaded
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from schemas.lifecycle import FAILED, LOADED, LOADING, UNLOADED, EnginePresence

PROGRESS_STEP = 0.1
"""Smaller steps of the loading progress are not told to anybody."""


class Wish(StrEnum):
    """What is wanted of a model. OBSERVE: its engines are started by others; give no orders."""

    OBSERVE = "observe"
    LOAD = "load"
    UNLOAD = "unload"


class Reason(StrEnum):
    """Why a status changed, as it stands in the history."""

    ORDERED = "ordered"
    ENGINE_LOADING = "engine_loading"
    ENGINE_LOADED = "engine_loaded"
    ENGINE_FAILED = "engine_failed"
    ENGINE_LOST = "engine_lost"
    HOST_REFUSED = "host_refused"
    STOPPED = "stopped"


class Verb(StrEnum):
    """What an order tells the engine host to do."""

    START = "start"
    STOP = "stop"


@dataclass(frozen=True, kw_only=True)
class Order:
    """Something to ask of the engine host, once."""

    verb: Verb
    engine: str


@dataclass(frozen=True, kw_only=True)
class Observation:
    """All that is known at one moment.

    engines: the living ones of the model, ours or not. ours: ids of the engines that a wish LOAD
    means. refusal: why the host does not start one, empty if it does.
    """

    wish: Wish
    engines: tuple[EnginePresence, ...] = ()
    ours: tuple[str, ...] = ()
    refusal: str = ""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A status and why. progress: 0–1 while loading. engine: who told. error: for people."""

    status: str = UNLOADED
    reason: Reason = Reason.STOPPED
    progress: float = 0.0
    engine: str = ""
    error: str = ""


@dataclass(frozen=True, kw_only=True)
class ModelState:
    """What the service remembers of a model. ordered, alive: ids of engines."""

    verdict: Verdict = Verdict()
    ordered: frozenset[str] = frozenset()
    alive: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The state from now on, whether others should hear of it, and what to ask of the host."""

    state: ModelState
    is_news: bool
    orders: tuple[Order, ...]


def decide(state: ModelState, seen: Observation) -> Decision:
    """What follows from `seen` for a model in `state`. Deciding twice over the same gives no news."""
    verdict = _judge(state, seen)
    alive = frozenset(engine.engine for engine in seen.engines)
    ordered = frozenset(seen.ours) if seen.wish is Wish.LOAD else frozenset[str]()
    is_news = _is_news(state.verdict, verdict)
    told = verdict if is_news else state.verdict  # so that small steps of progress add up
    return Decision(
        state=ModelState(verdict=told, ordered=ordered, alive=alive),
        is_news=is_news,
        orders=_orders(state, ordered, alive),
    )


def _orders(state: ModelState, wanted: frozenset[str], alive: frozenset[str]) -> tuple[Order, ...]:
    # Hosts restart what dies; the order is repeated because the host itself may be a new one.
    lost = wanted & state.alive - alive
    start = wanted - state.ordered | lost
    stop = state.ordered - wanted
    return (
        *(Order(verb=Verb.STOP, engine=engine) for engine in sorted(stop)),
        *(Order(verb=Verb.START, engine=engine) for engine in sorted(start)),
    )


def _judge(state: ModelState, seen: Observation) -> Verdict:
    if seen.wish is Wish.UNLOAD:
        return Verdict(status=UNLOADED, reason=Reason.STOPPED)
    for status, judge in _JUDGES:
        if telling := [engine for engine in seen.engines if engine.status == status]:
            return judge(telling)
    return _judge_without_engine(state.verdict, seen)


def _judge_loaded(engines: list[EnginePresence]) -> Verdict:
    engine = engines[0].engine
    return Verdict(status=LOADED, reason=Reason.ENGINE_LOADED, progress=1.0, engine=engine)


def _judge_loading(engines: list[EnginePresence]) -> Verdict:
    best = max(engines, key=lambda engine: engine.progress)
    progress = min(max(best.progress, 0.0), 1.0)
    return Verdict(
        status=LOADING, reason=Reason.ENGINE_LOADING, progress=progress, engine=best.engine
    )


def _judge_failed(engines: list[EnginePresence]) -> Verdict:
    engine, error = engines[0].engine, engines[0].error or "the engine does not say why"
    return Verdict(status=FAILED, reason=Reason.ENGINE_FAILED, engine=engine, error=error)


_JUDGES: tuple[tuple[str, Callable[[list[EnginePresence]], Verdict]], ...] = (
    (LOADED, _judge_loaded),
    (LOADING, _judge_loading),
    (FAILED, _judge_failed),
)
"""The best engine speaks for the model."""


def _judge_without_engine(before: Verdict, seen: Observation) -> Verdict:
    if seen.refusal:
        return Verdict(status=FAILED, reason=Reason.HOST_REFUSED, error=seen.refusal)
    if before.status == FAILED and before.reason is Reason.ENGINE_FAILED:
        return before  # an engine that reports a failure ends; its report must outlive it
    was_alive = before.status in (LOADED, LOADING) and before.engine != ""
    if seen.wish is Wish.OBSERVE:
        reason = Reason.ENGINE_LOST if was_alive else before.reason
        return Verdict(status=UNLOADED, reason=reason)
    if before.status == LOADING and not was_alive:
        return before
    return Verdict(status=LOADING, reason=Reason.ENGINE_LOST if was_alive else Reason.ORDERED)


def _is_news(before: Verdict, after: Verdict) -> bool:
    if (before.status, before.error) != (after.status, after.error):
        return True
    is_heard_first_or_last = bool(before.engine) != bool(after.engine)
    return is_heard_first_or_last or abs(after.progress - before.progress) >= PROGRESS_STEP
