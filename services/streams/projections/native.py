"""`POST /completion`: llama-server's own dialect."""

from collections.abc import Sequence

from schemas.events import ChoiceEnd, Progress, Timings
from services.streams.projections.choice import Choice, Piece
from services.streams.projections.context import Context
from services.streams.projections.dialect import Manners
from services.streams.projections.frames import data_frame, to_json
from services.streams.projections.settings_json import generation_settings
from services.streams.projections.shapes import (
    Json,
    probs_json,
    progress_json,
    timings_json,
    without_stop_word,
)

NO_SLOT = -1
"""What llama-server says in every frame but the last."""
NOTHING = Piece("", (), (), 0)


class Native(Manners):
    """Frames of `native.completion`."""

    shows_ids = True

    def __init__(self, context: Context) -> None:
        self._context = context
        self._heads: dict[int, bytes] = {}
        self._tails: dict[int, bytes] = {}

    def begin(self, choice: Choice) -> list[bytes]:
        self._heads[choice.index] = b'data: {"index":%d,"content":' % choice.index
        self._tails[choice.index] = b',"tokens_evaluated":%d}\n\n' % choice.n_prompt
        return []

    def content(self, choice: Choice, piece: Piece, timings: Timings | None) -> list[bytes]:
        if timings is not None or piece.probs:
            return [data_frame(partial_json(self._context, choice, piece, timings))]
        frame = b'%b%b,"tokens":%b,"stop":false,"id_slot":-1,"tokens_predicted":%d%b' % (
            self._heads[choice.index],
            to_json(piece.text),
            to_json(piece.ids),
            piece.n_predicted,
            self._tails[choice.index],
        )
        return [frame]

    def progress(self, choice: Choice, event: Progress, timings: Timings | None) -> list[bytes]:
        body = partial_json(self._context, choice, NOTHING, timings)
        return [data_frame(body | {"prompt_progress": progress_json(event)})]

    def end(self, choice: Choice, end: ChoiceEnd) -> list[bytes]:
        return [data_frame(final_json(self._context, choice, end))]

    def finish(self) -> list[bytes]:
        return []

    def answer(self, choices: Sequence[Choice]) -> object:
        """One object for one choice, else a list."""
        bodies = [final_json(self._context, choice, _end_of(choice)) for choice in choices]
        return bodies[0] if len(bodies) == 1 else bodies


def partial_json(context: Context, choice: Choice, piece: Piece, timings: Timings | None) -> Json:
    """One frame before the last."""
    body: Json = {
        "index": choice.index,
        "content": piece.text,
        "tokens": piece.ids,
        "stop": False,
        "id_slot": NO_SLOT,
        "tokens_predicted": piece.n_predicted,
        "tokens_evaluated": choice.n_prompt,
    }
    if timings is not None:
        body["timings"] = timings_json(timings)
    if piece.probs:
        is_post = context.params.sampling.post_sampling_probs
        body["completion_probabilities"] = probs_json(piece.probs, piece.ids, is_post=is_post)
    return body


def final_json(context: Context, choice: Choice, end: ChoiceEnd) -> Json:
    """The last frame, and the answer that is not streamed. Its fields are limited to
    `response_fields` where the request names some."""
    body = _final_fields(context, choice, end)
    n_probs = without_stop_word(choice.probs, end)
    if n_probs:
        is_post = context.params.sampling.post_sampling_probs
        shown = choice.probs[:n_probs]
        body["completion_probabilities"] = probs_json(shown, choice.ids, is_post=is_post)
    wanted = context.params.output.response_fields
    return select(wanted, body) if wanted else body


def _final_fields(context: Context, choice: Choice, end: ChoiceEnd) -> Json:
    return {
        "index": choice.index,
        "content": choice.text,
        "tokens": choice.ids if context.params.output.return_tokens else [],
        "id_slot": end.slot,
        "stop": True,
        "model": context.model,
        "tokens_predicted": end.n_predicted,
        "tokens_evaluated": end.n_prompt,
        "generation_settings": generation_settings(context.params, context.seed_of(choice.index)),
        "prompt": context.prompt_of(choice.index).text,
        "has_new_line": end.has_new_line,
        "truncated": end.is_truncated,
        "stop_type": end.stop_type,
        "stopping_word": end.stopping_word,
        "tokens_cached": end.n_context,
        "timings": timings_json(end.timings),
    }


def select(paths: Sequence[str], body: Json) -> Json:
    """The values at `paths` (keys joined by slashes), each under its whole path; missing ones left out."""
    found: Json = {}
    for path in paths:
        value: object = body
        for key in path.split("/"):
            value = value.get(key, _MISSING) if isinstance(value, dict) else _MISSING
        if value is not _MISSING:
            found[path] = value
    return found


_MISSING = object()


def _end_of(choice: Choice) -> ChoiceEnd:
    assert choice.end is not None, "an answer is rendered when every choice has ended"
    return choice.end
