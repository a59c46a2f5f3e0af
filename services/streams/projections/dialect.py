"""The interface between the fold over a log and the bytes of one dialect."""

from collections.abc import Sequence
from typing import Protocol

from schemas.events import ChoiceEnd, Progress, Timings
from services.streams.projections.choice import Choice, Piece
from services.streams.projections.context import Context
from services.streams.projections.shapes import Json, probs_json


class Dialect(Protocol):
    """Renders one answer. Methods return whole frames; they may keep state of their own.

    shows_ids: whether a piece without text is worth a frame for its token ids. Timings are given
    where a frame shall show them.
    """

    shows_ids: bool

    def __init__(self, context: Context) -> None: ...

    def begin(self, choice: Choice) -> list[bytes]:
        """Before the first token of a choice."""
        ...

    def content(self, choice: Choice, piece: Piece, timings: Timings | None) -> list[bytes]: ...

    def progress(self, choice: Choice, event: Progress, timings: Timings | None) -> list[bytes]: ...

    def end(self, choice: Choice, end: ChoiceEnd) -> list[bytes]: ...

    def finish(self) -> list[bytes]:
        """After the last choice ended."""
        ...

    def answer(self, choices: Sequence[Choice]) -> object:
        """The JSON of the whole answer, not streamed. choices: in order, each ended."""
        ...


def logprobs_json(context: Context, piece: Piece) -> Json:
    """The `logprobs` object of the OpenAI dialects."""
    is_post = context.params.sampling.post_sampling_probs
    return {"content": probs_json(piece.probs, piece.ids, is_post=is_post)}
