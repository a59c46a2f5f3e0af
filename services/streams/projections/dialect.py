"""The interface between the fold over a log and the bytes of one dialect."""

from collections.abc import Sequence
from typing import Protocol

from schemas.errors import Problem
from schemas.events import Cancelled, ChoiceEnd, Progress, Timings
from services.edge.errors import problem_body
from services.streams.projections.choice import Choice, Piece
from services.streams.projections.context import Context
from services.streams.projections.frames import PING
from services.streams.projections.shapes import Json, probs_json


class Dialect(Protocol):
    """Renders one answer. Methods return whole frames; they may keep state of their own.

    shows_ids: whether a piece without text is worth a frame for its token ids. Timings are given
    where a frame shall show them.
    """

    shows_ids: bool

    def __init__(self, context: Context) -> None: ...

    def start(self, choices: Sequence[Choice]) -> list[bytes]:
        """Once, when the slots are taken; what they found in their caches is known."""
        ...

    def begin(self, choice: Choice) -> list[bytes]:
        """Before the first token of a choice."""
        ...

    def content(self, choice: Choice, piece: Piece, timings: Timings | None) -> list[bytes]: ...

    def progress(self, choice: Choice, event: Progress, timings: Timings | None) -> list[bytes]: ...

    def end(self, choice: Choice, end: ChoiceEnd) -> list[bytes]: ...

    def heartbeat(self) -> list[bytes]:
        """Nothing happened for a while."""
        ...

    def finish(self) -> list[bytes]:
        """After the last choice ended."""
        ...

    def fail(self, problem: Problem, *, is_started: bool) -> list[bytes]:
        """The answer will not be complete. is_started: else nobody has seen any of it, and most are
        answered with an error instead."""
        ...

    def cancel(self, event: Cancelled) -> list[bytes]:
        """Somebody stopped the generation."""
        ...

    def answer(self, choices: Sequence[Choice]) -> object:
        """The JSON of the whole answer, not streamed. choices: in order, each ended."""
        ...


class Manners:
    """What the dialects without named events have in common."""

    def start(self, choices: Sequence[Choice]) -> list[bytes]:
        del choices
        return []

    def heartbeat(self) -> list[bytes]:
        return [PING]

    def fail(self, problem: Problem, *, is_started: bool) -> list[bytes]:
        return [b"data: %b\n\n" % problem_body(problem)] if is_started else []

    def cancel(self, event: Cancelled) -> list[bytes]:
        del event
        return []


def logprobs_json(context: Context, piece: Piece) -> Json:
    """The `logprobs` object of the OpenAI dialects."""
    is_post = context.params.sampling.post_sampling_probs
    return {"content": probs_json(piece.probs, piece.ids, is_post=is_post)}
