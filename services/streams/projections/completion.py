"""`POST /v1/completions`: OpenAI's text completions as llama-server writes them."""

from collections.abc import Sequence

from schemas.events import ChoiceEnd, Progress, Timings
from services.streams.projections.choice import Choice, Piece
from services.streams.projections.context import Context
from services.streams.projections.dialect import Manners, logprobs_json
from services.streams.projections.frames import DONE, data_frame, to_json
from services.streams.projections.native import NOTHING, final_json, partial_json
from services.streams.projections.shapes import (
    Json,
    finish_reason,
    progress_json,
    timings_json,
    usage_json,
    without_stop_word,
)


class Completion(Manners):
    """Frames of `openai.completion`."""

    def __init__(self, context: Context) -> None:
        self._context = context
        # With probabilities, a token without text still has something to show.
        self.shows_ids = context.params.sampling.n_probs > 0
        self._is_verbose = context.params.output.verbose
        self._tail = b',"finish_reason":null}],%b\n\n' % to_json(self._shared())[1:]

    def begin(self, choice: Choice) -> list[bytes]:
        return []

    def content(self, choice: Choice, piece: Piece, timings: Timings | None) -> list[bytes]:
        if timings is not None or piece.probs or self._is_verbose:
            return [data_frame(self._partial(choice, piece, timings))]
        frame = b'data: {"choices":[{"text":%b,"index":%d,"logprobs":null%b' % (
            to_json(piece.text),
            choice.index,
            self._tail,
        )
        return [frame]

    def progress(self, choice: Choice, event: Progress, timings: Timings | None) -> list[bytes]:
        body = self._partial(choice, NOTHING, timings)
        return [data_frame(body | {"prompt_progress": progress_json(event)})]

    def end(self, choice: Choice, end: ChoiceEnd) -> list[bytes]:
        return [data_frame(self._final(choice, end))]

    def finish(self) -> list[bytes]:
        return [DONE]

    def answer(self, choices: Sequence[Choice]) -> object:
        """The first choice's answer with the choices of all; llama-server's usage is the first's too."""
        bodies = [self._final(choice, choice.end) for choice in choices if choice.end is not None]
        return merge_choices(bodies)

    def _partial(self, choice: Choice, piece: Piece, timings: Timings | None) -> Json:
        logprobs = logprobs_json(self._context, piece) if piece.probs else None
        body = {"choices": [_choice_json(choice, piece.text, logprobs, None)], **self._shared()}
        if self._is_verbose:
            body["__verbose"] = partial_json(self._context, choice, piece, timings)
        if timings is not None:
            body["timings"] = timings_json(timings)
        return body

    def _final(self, choice: Choice, end: ChoiceEnd) -> Json:
        logprobs = final_logprobs(self._context, choice, end)
        shown = _choice_json(choice, choice.text, logprobs, finish_reason(end))
        body = {"choices": [shown], **self._shared(usage_json(end))}
        if self._is_verbose:
            body["__verbose"] = final_json(self._context, choice, end)
        return body | {"timings": timings_json(end.timings)}

    def _shared(self, usage: Json | None = None) -> Json:
        return shared_fields(self._context, "text_completion", usage)


def _choice_json(choice: Choice, text: str, logprobs: Json | None, reason: str | None) -> Json:
    return {"text": text, "index": choice.index, "logprobs": logprobs, "finish_reason": reason}


def shared_fields(context: Context, kind: str, usage: Json | None) -> Json:
    """What a text completion, and a whole chat completion, holds beside its choices."""
    return {
        "created": context.created,
        "model": context.model,
        "system_fingerprint": context.fingerprint,
        "object": kind,
        **({} if usage is None else {"usage": usage}),
        "id": context.id,
    }


def final_logprobs(context: Context, choice: Choice, end: ChoiceEnd) -> Json | None:
    """Probabilities of a whole choice, None where none were gathered."""
    n_shown = without_stop_word(choice.probs, end)
    if not n_shown:
        return None
    gathered = Piece("", tuple(choice.ids), tuple(choice.probs[:n_shown]), 0)
    return logprobs_json(context, gathered)


def merge_choices(bodies: Sequence[Json]) -> Json:
    """One answer of several, as llama-server makes it: the first one with everybody's choices."""
    choices: list[object] = []
    for body in bodies:
        part = body["choices"]
        assert isinstance(part, list)
        choices += part
    return {**bodies[0], "choices": choices}
