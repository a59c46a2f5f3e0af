"""The fold of a log into the frames, or the one JSON body, of its answer."""

from collections.abc import Callable
from typing import NamedTuple

import schemas.generation as fold
from schemas.errors import INVALID_REQUEST, Problem
from schemas.events import (
    Cancelled,
    Event,
    Failed,
    Finished,
    Heartbeat,
    Progress,
    Requested,
    Started,
    Timings,
    Tokens,
)
from schemas.generation import Generation
from services.edge.errors import problem_body
from services.streams.projections.choice import Choice, cut
from services.streams.projections.context import Context
from services.streams.projections.dialect import Dialect
from services.streams.projections.frames import to_json
from services.streams.projections.shapes import progress_timings


class Result(NamedTuple):
    """An answer that is not streamed. status: of HTTP. body: JSON."""

    status: int
    body: bytes


class Projection:
    """One log in one dialect. Feed it every event in order; it does no I/O and knows no clock.

    is_streamed: frames, or one body; None: as the client asked.
    """

    def __init__(
        self,
        requested: Requested,
        new_dialect: Callable[[Context], Dialect],
        *,
        is_streamed: bool | None = None,
    ) -> None:
        self.requested = requested
        self.generation = Generation()
        self._context = Context(requested)
        self._new_dialect = new_dialect
        self._dialect = new_dialect(self._context)
        wanted = requested.params.output.stream
        self._is_streamed = wanted if is_streamed is None else is_streamed
        self._choices: dict[int, Choice] = {}

    def apply(self, event: Event) -> list[bytes]:
        """The frames that `event` adds, whole; none if the answer is not streamed."""
        before, self.generation = self.generation, fold.apply(self.generation, event)
        if self.generation.n_ignored != before.n_ignored:
            return []
        if isinstance(event, Tokens):
            return self._on_tokens(event)
        return self._on_other(event) if self.is_started else []

    @property
    def context(self) -> Context:
        return self._context

    @property
    def choices(self) -> list[Choice]:
        """Those that have begun, in order; their texts are gathered where nothing is streamed."""
        return [self._choices[index] for index in sorted(self._choices)]

    @property
    def is_started(self) -> bool:
        """Whether headers may go out: a slot was taken, or it is over."""
        return self.generation.first_started is not None or self.is_done

    @property
    def is_done(self) -> bool:
        return self.generation.end is not None

    @property
    def failed_before_start(self) -> Problem | None:
        """Why there is no stream at all: answer with this instead of one."""
        return None if self.generation.first_started is not None else self.problem

    @property
    def problem(self) -> Problem | None:
        """Why the answer is not complete, once it is over; None if it is."""
        match self.generation.end:
            case Failed(problem=problem):
                return problem
            case Cancelled(reason=reason):
                message = f"The generation was cancelled ({reason}); send the request again"
                return Problem(code=INVALID_REQUEST, message=message)
            case _:
                return None

    def result(self) -> Result:
        """The answer of a generation that is done. Only where streaming was not asked for."""
        assert self.is_done, "the generation is still running"
        if (problem := self.problem) is not None:
            return Result(problem.status, problem_body(problem))
        return Result(200, to_json(self._dialect.answer(self.choices)))

    def _on_other(self, event: Event) -> list[bytes]:
        is_first = isinstance(event, Started) and self._on_started(event)
        if isinstance(event, Finished):
            self._context.on_finished(event)
        if not self._is_streamed:
            return []
        match event:
            case Started() if is_first:
                return self._dialect.start(self.choices)
            case Progress(is_shown=True):
                return self._on_progress(event)
            case Heartbeat():
                return self._dialect.heartbeat()
            case Finished():
                return self._dialect.finish()
            case Failed(problem=problem):
                is_started = self.failed_before_start is None
                return self._dialect.fail(problem, is_started=is_started)
            case Cancelled():
                return self._dialect.cancel(event)
            case _:
                return []

    def _on_started(self, event: Started) -> bool:
        """Whether it is the first attempt."""
        is_first = self.generation.first_started is event
        if is_first:
            self._context.on_started(event)
            self._dialect = self._new_dialect(self._context)
        for start in event.choices:
            self._choice(start.choice).on_attempt(start)
        return is_first

    def _on_progress(self, event: Progress) -> list[bytes]:
        choice = self._choice(event.choice)
        if choice.n_predicted:  # a later attempt reads the prompt again: no news for the client
            return []
        timings = progress_timings(event) if self._shows_timings else None
        return self._dialect.progress(choice, event, timings)

    def _on_tokens(self, event: Tokens) -> list[bytes]:
        choice = self._choice(event.choice)
        is_first = choice.n_predicted == 0 and event.index == 0
        choice.on_tokens(event)
        if not self._is_streamed:
            choice.collect(event)
            return []
        frames = self._dialect.begin(choice) if is_first else []
        frames += self._content(choice, event)
        if event.end is not None:
            frames += self._dialect.end(choice, event.end)
        return frames

    def _content(self, choice: Choice, event: Tokens) -> list[bytes]:
        timings = choice.timings() if self._shows_timings or _is_stop_word(event) else None
        frames: list[bytes] = []
        for piece in cut(choice, event):
            if piece.text or self._dialect.shows_ids:
                frames += self._dialect.content(choice, piece, _at(timings, piece.n_predicted))
        return frames

    @property
    def _shows_timings(self) -> bool:
        return self._context.params.output.timings_per_token

    def _choice(self, index: int) -> Choice:
        if index not in self._choices:
            n_prompt = len(self._context.prompt_of(index).ids)
            self._choices[index] = Choice(
                index=index, n_prompt=n_prompt, counts_thoughts=self._context.has_thoughts
            )
        return self._choices[index]


def _is_stop_word(event: Tokens) -> bool:
    """llama-server notices a stop word before it sends the token that completed it, with timings."""
    return event.end is not None and event.end.stop_type == "word"


def _at(timings: Timings | None, n_predicted: int) -> Timings | None:
    """`timings` with the count of the piece that shows them."""
    if timings is None or timings.n_predicted == n_predicted:
        return timings
    return Timings(
        n_cached=timings.n_cached,
        n_prompt=timings.n_prompt,
        prompt_ms=timings.prompt_ms,
        n_predicted=n_predicted,
        predicted_ms=timings.predicted_ms,
    )
