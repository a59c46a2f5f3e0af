"""`POST /v1/chat/completions`: OpenAI's chat completions as llama-server writes them."""

from collections.abc import Sequence

from schemas.events import ChoiceEnd, Progress, Timings
from services.streams.projections.choice import Choice, Piece, joined
from services.streams.projections.completion import final_logprobs, merge_choices, shared_fields
from services.streams.projections.context import Context
from services.streams.projections.dialect import Manners, logprobs_json
from services.streams.projections.frames import DONE, data_frame, to_json
from services.streams.projections.message import (
    CALLS,
    Delta,
    MessageParser,
    delta_json,
    message_of,
)
from services.streams.projections.native import final_json
from services.streams.projections.shapes import (
    Json,
    finish_reason,
    progress_json,
    timings_json,
    usage_json,
)

CHUNK = "chat.completion.chunk"
ROLE: Json = {"role": "assistant", "content": None}


class Chat(Manners):
    """Frames of `openai.chat`."""

    shows_ids = False

    def __init__(self, context: Context) -> None:
        self._context = context
        self._parsers: dict[int, MessageParser] = {}
        self._callers: set[int] = set()
        self._unshown: dict[int, Piece] = {}
        self._heads: dict[tuple[int, str], bytes] = {}
        self._ends: list[ChoiceEnd] = []
        self._n_thought = 0
        self._tail = b"}}],%b\n\n" % to_json(self._shared())[1:]

    def begin(self, choice: Choice) -> list[bytes]:
        self._parsers[choice.index] = self._context.new_parser(choice.index)
        return [data_frame(self._chunk(_choice_json(choice, ROLE)))]

    def content(self, choice: Choice, piece: Piece, timings: Timings | None) -> list[bytes]:
        deltas = self._parsers[choice.index].feed(piece.text)
        self._note_calls(choice, deltas)
        if timings is None and not piece.probs and choice.index not in self._unshown:
            return [self._delta_frame(choice, delta) for delta in deltas]
        piece = joined(self._unshown.pop(choice.index, None), piece)
        if not deltas:
            self._unshown[choice.index] = piece
            return []
        chunks = [self._chunk(_choice_json(choice, delta_json(delta))) for delta in deltas]
        chunks[-1] = self._detailed(choice, deltas[-1], piece, timings)
        return [data_frame(chunk) for chunk in chunks]

    def _note_calls(self, choice: Choice, deltas: Sequence[Delta]) -> None:
        if any(delta.head is not None for delta in deltas):
            self._callers.add(choice.index)

    def progress(self, choice: Choice, event: Progress, timings: Timings | None) -> list[bytes]:
        chunk = self._chunk(_choice_json(choice, ROLE))
        if timings is not None:
            chunk["timings"] = timings_json(timings)
        return [data_frame(chunk | {"prompt_progress": progress_json(event)})]

    def end(self, choice: Choice, end: ChoiceEnd) -> list[bytes]:
        deltas = self._parsers[choice.index].close()
        self._note_calls(choice, deltas)
        chunks = [self._chunk(_choice_json(choice, delta_json(delta))) for delta in deltas]
        reason = finish_reason(end, has_calls=choice.index in self._callers)
        chunks.append(self._chunk(_choice_json(choice, {}, reason)))
        self._ends.append(end)
        self._n_thought += choice.n_thought(self._parsers[choice.index].thoughts)
        if not self._context.params.output.include_usage:
            chunks[-1]["timings"] = timings_json(end.timings)
        if self._context.params.output.verbose:
            chunks[0]["__verbose"] = final_json(self._context, choice, end)
        return [data_frame(chunk) for chunk in chunks]

    def finish(self) -> list[bytes]:
        if not (self._context.params.output.include_usage and self._ends):
            return [DONE]
        return [data_frame(self._usage_chunk(self._ends)), DONE]

    def answer(self, choices: Sequence[Choice]) -> object:
        """The first choice's answer with the choices of all, and what they used together."""
        ended = [(choice, choice.end) for choice in choices if choice.end is not None]
        merged = merge_choices([self._answer(choice, end) for choice, end in ended])
        return merged | {"usage": _usage([end for _, end in ended], self._n_thought)}

    def _answer(self, choice: Choice, end: ChoiceEnd) -> Json:
        parser = self._context.new_parser(choice.index, is_whole=True)
        message = message_of(parser, choice.text)
        self._n_thought += choice.n_thought(parser.thoughts)
        shown: Json = {
            "finish_reason": finish_reason(end, has_calls=CALLS in message),
            "index": choice.index,
            "message": message,
        }
        if (logprobs := final_logprobs(self._context, choice, end)) is not None:
            shown["logprobs"] = logprobs
        shared = shared_fields(self._context, "chat.completion", usage_json(end))
        body: Json = {"choices": [shown], **shared}
        if self._context.params.output.verbose:
            body["__verbose"] = final_json(self._context, choice, end)
        return body | {"timings": timings_json(end.timings)}

    def _delta_frame(self, choice: Choice, delta: Delta) -> bytes:
        """The hot path: only the text is new."""
        if delta.field == CALLS:
            return data_frame(self._chunk(_choice_json(choice, delta_json(delta))))
        key = (choice.index, delta.field)
        head = self._heads.get(key)
        if head is None:
            start = b'data: {"choices":[{"finish_reason":null,"index":%d,"delta":{%b:'
            head = self._heads[key] = start % (choice.index, to_json(delta.field))
        return b"%b%b%b" % (head, to_json(delta.text), self._tail)

    def _detailed(
        self, choice: Choice, delta: Delta, piece: Piece, timings: Timings | None
    ) -> Json:
        shown = _choice_json(choice, delta_json(delta))
        if piece.probs:
            shown["logprobs"] = logprobs_json(self._context, piece)
        chunk = self._chunk(shown)
        return chunk if timings is None else chunk | {"timings": timings_json(timings)}

    def _usage_chunk(self, ends: Sequence[ChoiceEnd]) -> Json:
        timings = {"timings": timings_json(ends[-1].timings)}
        return {"choices": [], **self._shared(), "usage": _usage(ends, self._n_thought), **timings}

    def _chunk(self, choice: Json) -> Json:
        return {"choices": [choice], **self._shared()}

    def _shared(self) -> Json:
        return {
            "created": self._context.created,
            "id": self._context.id,
            "model": self._context.model,
            "system_fingerprint": self._context.fingerprint,
            "object": CHUNK,
        }


def _usage(ends: Sequence[ChoiceEnd], n_thought: int) -> Json:
    """What a whole request used: its choices share one prompt."""
    n_predicted = sum(end.n_predicted for end in ends)
    return usage_json(ends[0], n_predicted=n_predicted, n_thought=n_thought)


def _choice_json(choice: Choice, delta: Json, reason: str | None = None) -> Json:
    return {"finish_reason": reason, "index": choice.index, "delta": delta}
