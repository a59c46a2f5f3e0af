"""What a run has to tell the log next. Pure: outputs in, events out, no clock.

Tokens that arrive while an append is under way are merged, so a slow broker costs latency, not order.
"""

from collections.abc import Sequence

import msgspec

from schemas.events import (
    ChoiceEnd,
    ChoiceStart,
    Compat,
    Controlled,
    Event,
    Finished,
    Heartbeat,
    Progress,
    Started,
    TokenProbs,
    Tokens,
    Usage,
)
from services.engine.protocol import (
    ContextShifted,
    Emitted,
    Ended,
    PromptProgress,
    ReasoningEnded,
)

REASONING_END = "reasoning_end"
"""The action of `controlled`: the end of thinking is forced."""


class _TokensBuilder:
    """One `tokens` event in the making."""

    def __init__(self, choice: int, index: int) -> None:
        self.choice = choice
        self.index = index
        self.ids: list[int] = []
        self.texts: list[str] = []
        self.probs: list[TokenProbs] = []
        self.draws: list[int] = []
        self.xtc_draws: list[int] = []
        self.mu: list[float] = []
        self.elapsed_us = 0
        self.prompt_us = 0
        self.end: ChoiceEnd | None = None

    def add(self, output: Emitted) -> None:
        self.ids.append(output.id)
        self.texts.append(output.text)
        self.draws.append(output.draws)
        self.xtc_draws.append(output.xtc_draws)
        if output.mu is not None:
            self.mu.append(output.mu)
        if output.probs is not None:
            self.probs.append(output.probs)
        self.elapsed_us = output.elapsed_us
        self.prompt_us = self.prompt_us or output.prompt_us

    def build(self) -> Tokens:
        return Tokens(
            choice=self.choice,
            index=self.index,
            ids=tuple(self.ids),
            texts=tuple(self.texts),
            probs=tuple(self.probs),
            draws=_unless_ones(self.draws),
            xtc_draws=_unless_ones(self.xtc_draws),
            mu=tuple(self.mu),
            elapsed_us=self.elapsed_us,
            prompt_us=self.prompt_us,
            end=self.end,
        )


def _unless_ones(counts: list[int]) -> tuple[int, ...]:
    return () if counts.count(1) == len(counts) else tuple(counts)


class Outbox:
    """Collects outputs of one attempt of one generation.

    n_tokens: per choice, what the log already holds. open_choices: those that have not ended.
    """

    def __init__(self, n_tokens: dict[int, int], open_choices: frozenset[int]) -> None:
        self._n_tokens = dict(n_tokens)
        self._open = set(open_choices)
        self._events: list[Event] = []
        self._builders: dict[int, _TokensBuilder] = {}
        self._n_predicted = 0

    @property
    def is_empty(self) -> bool:
        return not self._events and not self._builders

    @property
    def n_unsent(self) -> int:
        """Tokens since the last drain."""
        return sum(len(builder.ids) for builder in self._builders.values())

    @property
    def is_complete(self) -> bool:
        """Whether every choice has ended."""
        return not self._open

    def add_started(self, started: Started) -> None:
        self._events.append(started)

    def add_heartbeat(self, elapsed_us: int) -> None:
        self._events.append(Heartbeat(elapsed_us=elapsed_us))

    def add_progress(self, output: PromptProgress, *, is_shown: bool) -> None:
        self._events.append(
            Progress(
                choice=output.choice,
                n_total=output.n_total,
                n_cached=output.n_cached,
                n_processed=output.n_processed,
                elapsed_us=output.elapsed_us,
                is_shown=is_shown,
            )
        )

    def add_token(self, output: Emitted) -> None:
        self._builder(output.choice).add(output)
        self._n_tokens[output.choice] = output.index + 1

    def add_controlled(self, output: ReasoningEnded) -> None:
        event = Controlled(choice=output.choice, index=output.index, action=REASONING_END)
        self._events.append(event)

    def add_shifted(self, output: ContextShifted) -> None:
        self._events.append(output.shift)

    def add_end(self, output: Ended) -> None:
        self._builder(output.end.choice).end = output.end
        self._open.discard(output.end.choice)

    def drain(self) -> list[Event]:
        """Everything since the last drain, in order; tokens last."""
        events = self._events
        events += [builder.build() for builder in self._builders.values()]
        self._events, self._builders = [], {}
        return events

    def _builder(self, choice: int) -> _TokensBuilder:
        builder = self._builders.get(choice)
        if builder is None:
            builder = _TokensBuilder(choice, self._n_tokens.get(choice, 0))
            self._builders[choice] = builder
        return builder


def started_event(
    attempt: int,
    compat: Compat,
    choices: tuple[ChoiceStart, ...],
    n_tokens: dict[int, int],
    at_ms: int,
) -> Started:
    """The `started` event of an attempt; later attempts say where they take up."""
    resumed_at = tuple(n_tokens.get(choice.choice, 0) for choice in choices)
    return Started(
        attempt=attempt,
        compat=compat,
        choices=choices,
        resumed_at=resumed_at if any(resumed_at) else (),
        at_ms=at_ms,
    )


def halves(events: Sequence[Event]) -> tuple[Sequence[Event], Sequence[Event]] | None:
    """`events` as two lists that say the same, for what fits into no entry; None if it is one token."""
    middle = len(events) // 2
    if middle:
        return events[:middle], events[middle:]
    (only,) = events
    if not isinstance(only, Tokens) or len(only.ids) < 2:
        return None
    first, second = _split(only, len(only.ids) // 2)
    return [first], [second]


def _split(tokens: Tokens, n: int) -> tuple[Tokens, Tokens]:
    """Two events of the first `n` tokens and of the rest."""
    change = msgspec.structs.replace
    first = change(
        tokens,
        ids=tokens.ids[:n],
        texts=tokens.texts[:n],
        probs=tokens.probs[:n],
        draws=tokens.draws[:n],
        xtc_draws=tokens.xtc_draws[:n],
        mu=tokens.mu[:n],
        end=None,
    )
    second = change(
        tokens,
        index=tokens.index + n,
        ids=tokens.ids[n:],
        texts=tokens.texts[n:],
        probs=tokens.probs[n:],
        draws=tokens.draws[n:],
        xtc_draws=tokens.xtc_draws[n:],
        mu=tokens.mu[n:],
        prompt_us=0,
    )
    return first, second


def finished_event(ends: dict[int, ChoiceEnd], n_choices_per_prompt: int, at_ms: int) -> Finished:
    """The end of a log all of whose choices ended. A prompt counts once, whatever its choices."""
    firsts = [end for choice, end in ends.items() if choice % n_choices_per_prompt == 0]
    return Finished(
        usage=Usage(
            n_prompt=sum(end.n_prompt for end in firsts),
            n_predicted=sum(end.n_predicted for end in ends.values()),
            n_cached=sum(end.n_cached for end in firsts),
        ),
        at_ms=at_ms,
    )
