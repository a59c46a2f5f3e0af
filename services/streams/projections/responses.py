"""`POST /v1/responses`: OpenAI's responses as named events with sequence numbers.

The events of llama-server and what OpenAI's service adds to them: indexes, `…done` for everything
that was begun. Pings are comments without a number. Where a limit ended the answer its status is
`incomplete`, as OpenAI says; the last event is `response.completed` all the same, as llama-server's,
for clients wait for it.
"""

from collections.abc import Sequence
from typing import NamedTuple

from schemas.errors import Problem
from schemas.events import Cancelled, ChoiceEnd, Progress, Timings
from services.streams.projections.blocks import Block, Blocks, Change, Kind, Step
from services.streams.projections.choice import Choice, Piece
from services.streams.projections.context import Context
from services.streams.projections.frames import PING, event_frame
from services.streams.projections.responses_json import (
    CANCELLED,
    COMPLETED,
    FAILED,
    IN_PROGRESS,
    INCOMPLETE,
    QUEUED,
    ResponseObject,
    item_id,
    item_json,
    part_json,
    usage_json,
)
from services.streams.projections.shapes import Json, probs_json, progress_json, timings_json

DELTAS = {
    Kind.TEXT: "response.output_text",
    Kind.THOUGHT: "response.reasoning_text",
    Kind.CALL: "response.function_call_arguments",
}


class Responses:
    """Frames of `openai.responses`. Only the first choice is shown: the dialect knows no others."""

    shows_ids = False

    def __init__(self, context: Context) -> None:
        self._context = context
        self._response = ResponseObject(context)
        self._blocks = Blocks(context.new_parser())
        self._items: list[Json] = []
        self._logprobs: list[Json] = []
        self._end: ChoiceEnd | None = None
        self._n_thought = 0
        self._sequence = 0

    def start(self, choices: Sequence[Choice]) -> list[bytes]:
        del choices
        return [*self._open(), self._state("response.in_progress", IN_PROGRESS)]

    def begin(self, choice: Choice) -> list[bytes]:
        del choice
        return []

    def content(self, choice: Choice, piece: Piece, timings: Timings | None) -> list[bytes]:
        if choice.index:
            return []
        logprobs = self._logprobs_of(piece)
        events = [
            event for change in self._blocks.feed(piece.text) for event in self._events(change)
        ]
        for name, body in events:
            if name == "response.output_text.delta":
                body["logprobs"], logprobs = logprobs, []
        if events and timings is not None:
            events[-1][1]["timings"] = timings_json(timings)
        return [self._frame(name, body) for name, body in events]

    def progress(self, choice: Choice, event: Progress, timings: Timings | None) -> list[bytes]:
        if choice.index:
            return []
        body: Json = {"response": self._response.json(IN_PROGRESS)}
        if timings is not None:
            body["timings"] = timings_json(timings)
        body["prompt_progress"] = progress_json(event)
        return [self._frame("response.in_progress", body)]

    def heartbeat(self) -> list[bytes]:
        return [PING]

    def end(self, choice: Choice, end: ChoiceEnd) -> list[bytes]:
        if choice.index:
            return []
        self._end = end
        changes = list(self._blocks.close())
        self._n_thought = choice.n_thought(self._blocks.thoughts)
        events = [event for change in changes for event in self._events(change)]
        return [self._frame(name, body) for name, body in events]

    def finish(self) -> list[bytes]:
        assert self._end is not None, "a generation is finished when its choices have ended"
        status, usage = status_of(self._end), usage_json(self._end, self._n_thought)
        body: Json = {"response": self._response.json(status, self._items, usage=usage)}
        body["timings"] = timings_json(self._end.timings)
        return [self._frame("response.completed", body)]

    def fail(self, problem: Problem, *, is_started: bool) -> list[bytes]:
        del is_started
        error = error_json(problem)
        return [*self._open(), self._state("response.failed", FAILED, error)]

    def cancel(self, event: Cancelled) -> list[bytes]:
        del event
        return [*self._open(), self._state("response.cancelled", CANCELLED)]

    def answer(self, choices: Sequence[Choice]) -> object:
        choice = choices[0]
        assert choice.end is not None, "an answer is rendered when every choice has ended"
        output = output_of(self._context, choice)
        usage = usage_json(choice.end, output.n_thought)
        return self._response.json(status_of(choice.end), output.items, usage=usage)

    def _open(self) -> list[bytes]:
        """The first event, if it was not sent yet. A background response began in a queue."""
        if self._sequence:
            return []
        if not self._response.is_background:
            return [self._state("response.created", IN_PROGRESS)]
        return [
            self._state("response.created", QUEUED),
            self._state("response.queued", QUEUED),
        ]

    def _state(self, name: str, status: str, error: Json | None = None) -> bytes:
        is_over = status in (FAILED, CANCELLED)
        output = [*self._items, *self._unfinished()] if is_over else []
        return self._frame(name, {"response": self._response.json(status, output, error=error)})

    def _unfinished(self) -> list[Json]:
        rest = self._blocks.all[len(self._items) :]
        return [item_json(self._context, block, INCOMPLETE) for block in rest]

    def _logprobs_of(self, piece: Piece) -> list[Json]:
        is_post = self._context.params.sampling.post_sampling_probs
        found = probs_json(piece.probs, piece.ids, is_post=is_post)
        self._logprobs += found
        return found

    def _events(self, change: Change) -> list[tuple[str, Json]]:
        block = change.block
        match change.step:
            case Step.OPENED:
                return self._opened(block)
            case Step.GREW:
                return [(f"{DELTAS[block.kind]}.delta", self._at(block) | {"delta": change.text})]
            case Step.CLOSED:
                return self._closed(block)

    def _opened(self, block: Block) -> list[tuple[str, Json]]:
        item = item_json(self._context, block, IN_PROGRESS)
        body: Json = {"output_index": block.index, "item": item}
        events = [("response.output_item.added", body)]
        if block.kind is not Kind.CALL:
            part = self._at(block) | {"part": part_json(block, text="")}
            events.append(("response.content_part.added", part))
        return events

    def _closed(self, block: Block) -> list[tuple[str, Json]]:
        """Its text is complete; the whole item is not where a limit cut it off."""
        is_last = block is self._blocks.all[-1]
        status = status_of(self._end) if is_last and self._end is not None else COMPLETED
        logprobs = self._logprobs if block.kind is Kind.TEXT else []
        item = item_json(self._context, block, status, logprobs)
        self._items.append(item)
        events = self._text_done(block, logprobs)
        done: Json = {"output_index": block.index, "item": item}
        return [*events, ("response.output_item.done", done)]

    def _text_done(self, block: Block, logprobs: list[Json]) -> list[tuple[str, Json]]:
        at, name = self._at(block), f"{DELTAS[block.kind]}.done"
        if block.kind is Kind.CALL:
            return [(name, at | {"name": block.name, "arguments": block.text})]
        self._logprobs = []
        part = at | {"part": part_json(block, logprobs)}
        shown: Json = {"logprobs": logprobs} if block.kind is Kind.TEXT else {}
        whole = at | {"text": block.text} | shown
        return [(name, whole), ("response.content_part.done", part)]

    def _at(self, block: Block) -> Json:
        """Where in the response an event belongs."""
        place: Json = {"item_id": item_id(self._context, block), "output_index": block.index}
        return place if block.kind is Kind.CALL else place | {"content_index": 0}

    def _frame(self, name: str, body: Json) -> bytes:
        sequence, self._sequence = self._sequence, self._sequence + 1
        return event_frame(name, {"type": name, "sequence_number": sequence, **body})


def status_of(end: ChoiceEnd) -> str:
    return INCOMPLETE if end.stop_type == "limit" else COMPLETED


def error_json(problem: Problem) -> Json:
    return {"code": problem.code, "message": problem.message}


class Output(NamedTuple):
    """items: of the response. n_thought: tokens that are thoughts."""

    items: list[Json]
    n_thought: int


def output_of(context: Context, choice: Choice, *, unfinished: str = IN_PROGRESS) -> Output:
    """The output items of a choice as far as it is known; its texts were gathered. unfinished: status
    of the last item while the choice has no end."""
    blocks = Blocks(context.new_parser())
    for _ in blocks.feed(choice.text) if choice.text else ():
        pass
    if choice.end is not None:
        for _ in blocks.close():
            pass
    last = unfinished if choice.end is None else status_of(choice.end)
    is_post = context.params.sampling.post_sampling_probs
    logprobs = probs_json(choice.probs, choice.ids, is_post=is_post)
    found: list[Json] = []
    for block in blocks.all:
        status = last if block is blocks.all[-1] else COMPLETED
        found.append(item_json(context, block, status, logprobs))
    return Output(found, choice.n_thought(blocks.thoughts))
