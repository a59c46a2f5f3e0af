"""The state of one generation's log: pure folds that engines, gateways and readers share.

`Generation` is small and constant in size, so that the hot path can fold every event; `collect`
gathers the tokens themselves, for those that continue or inspect a log.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from schemas.events import (
    Cancelled,
    ChoiceEnd,
    ChoiceStart,
    Claimed,
    Controlled,
    Event,
    Failed,
    Finished,
    Progress,
    Released,
    Requested,
    Shifted,
    Started,
    Tokens,
)

MAX_CLAIMS_WITHOUT_TOKEN = 3
"""So many claims in a row without a new token make a request poisonous."""


class Generation(msgspec.Struct, frozen=True, kw_only=True):
    """One log, folded.

    last_seq: stream sequence of its last entry, 0 when empty. attempt, engine: of the last claim.
    n_tokens: per choice. ended: choices that ended. n_ignored: events that broke the order.
    """

    last_seq: int = 0
    requested: Requested | None = None
    attempt: int = 0
    engine: str | None = None
    claims_without_token: int = 0
    first_started: Started | None = None
    n_tokens: dict[int, int] = {}
    ended: frozenset[int] = frozenset()
    end: Finished | Failed | Cancelled | None = None
    n_ignored: int = 0

    @property
    def is_open(self) -> bool:
        return self.requested is not None and self.end is None

    @property
    def is_closed(self) -> bool:
        return self.end is not None

    @property
    def is_poisonous(self) -> bool:
        return self.claims_without_token >= MAX_CLAIMS_WITHOUT_TOKEN


def apply(state: Generation, event: Event) -> Generation:
    """The state after `event`. Total: what breaks the order is counted in n_ignored, never raised."""
    if state.end is not None:
        return _ignore(state)
    match event:
        case Tokens():
            return _apply_tokens(state, event)
        case Requested():
            if state.requested is not None:
                return _ignore(state)
            return msgspec.structs.replace(state, requested=event)
        case Claimed():
            return msgspec.structs.replace(
                state,
                attempt=event.attempt,
                engine=event.engine,
                claims_without_token=state.claims_without_token + 1,
            )
        case Started():
            return msgspec.structs.replace(state, first_started=state.first_started or event)
        case Released():
            return msgspec.structs.replace(state, engine=None, claims_without_token=0)
        case Finished() | Failed() | Cancelled():
            return msgspec.structs.replace(state, end=event)
        case _:
            return state


def apply_entry(state: Generation, seq: int, events: Iterable[Event]) -> Generation:
    """The state after one stored entry. seq: its stream sequence."""
    for event in events:
        state = apply(state, event)
    return msgspec.structs.replace(state, last_seq=seq)


def _ignore(state: Generation) -> Generation:
    return msgspec.structs.replace(state, n_ignored=state.n_ignored + 1)


def _apply_tokens(state: Generation, event: Tokens) -> Generation:
    n_before = state.n_tokens.get(event.choice, 0)
    if event.index != n_before or event.choice in state.ended:
        return _ignore(state)
    return msgspec.structs.replace(
        state,
        n_tokens={**state.n_tokens, event.choice: n_before + len(event.ids)},
        claims_without_token=0 if event.ids else state.claims_without_token,
        ended=state.ended if event.end is None else state.ended | {event.choice},
    )


@dataclass(kw_only=True)
class ChoiceTokens:
    """Everything that one choice's log says. ids, texts, draws, xtc_draws: per token.

    mu: the sampler's last state. start: of the attempt that brought the first token, or of the last one
    if none has. progress: how many prompt tokens were done after each decode call of that attempt but
    the last. elapsed_us: generating time of all attempts so far, prompt_us: prefill time of the first.
    """

    ids: list[int] = field(default_factory=list[int])
    texts: list[str] = field(default_factory=list[str])
    draws: list[int] = field(default_factory=list[int])
    xtc_draws: list[int] = field(default_factory=list[int])
    mu: float | None = None
    start: ChoiceStart | None = None
    progress: list[int] = field(default_factory=list[int])
    elapsed_us: int = 0
    prompt_us: int = 0
    shifts: list[Shifted] = field(default_factory=list[Shifted])
    controls: list[Controlled] = field(default_factory=list[Controlled])
    end: ChoiceEnd | None = None


def collect(events: Iterable[Event]) -> dict[int, ChoiceTokens]:
    """The tokens of every choice, in one pass over a log's events; the order is checked as in `apply`."""
    choices: dict[int, ChoiceTokens] = {}
    attempt_us: dict[int, int] = {}
    for event in events:
        match event:
            case Finished() | Failed() | Cancelled():
                break
            case Started():
                for start in event.choices:
                    attempt_us.pop(start.choice, None)
                    _collect_start(choices.setdefault(start.choice, ChoiceTokens()), start)
            case Progress():
                _collect_progress(choices.setdefault(event.choice, ChoiceTokens()), event)
            case Tokens():
                choice = choices.setdefault(event.choice, ChoiceTokens())
                if event.index == len(choice.ids) and choice.end is None:
                    _collect_tokens(choice, event, attempt_us.get(event.choice))
                    attempt_us[event.choice] = event.elapsed_us
            case Shifted():
                choices.setdefault(event.choice, ChoiceTokens()).shifts.append(event)
            case Controlled():
                choices.setdefault(event.choice, ChoiceTokens()).controls.append(event)
            case _:
                pass
    return choices


def _collect_start(choice: ChoiceTokens, start: ChoiceStart) -> None:
    """How the prompt was decoded matters of the attempt that generated from it."""
    if not choice.ids:
        choice.start, choice.progress = start, []


def _collect_progress(choice: ChoiceTokens, event: Progress) -> None:
    if not choice.ids and event.n_processed < event.n_total:
        choice.progress.append(event.n_processed)


def _collect_tokens(choice: ChoiceTokens, event: Tokens, before_us: int | None) -> None:
    choice.ids += event.ids
    choice.texts += event.texts
    ones = (1,) * len(event.ids)
    choice.draws += event.draws or ones
    choice.xtc_draws += event.xtc_draws or ones
    if event.mu:
        choice.mu = event.mu[-1]
    if before_us is not None:
        choice.elapsed_us += event.elapsed_us - before_us
    if event.prompt_us and not choice.prompt_us:
        choice.prompt_us = event.prompt_us
    choice.end = event.end
