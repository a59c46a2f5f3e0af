"""`POST /v1/messages`: Anthropic's messages.

As llama-server's, but for what Anthropic's own service does otherwise: a block is closed before the
next one begins, a stop sequence is a reason of its own, and the stream opens when the slot is taken.
"""

from collections.abc import Sequence

import orjson

from schemas.errors import Problem
from schemas.events import Cancelled, ChoiceEnd, Progress, Timings
from services.edge.errors import problem_fields
from services.streams.projections.blocks import Block, Blocks, Change, Kind, Step
from services.streams.projections.choice import Choice, Piece
from services.streams.projections.context import Context
from services.streams.projections.frames import event_frame, to_json
from services.streams.projections.shapes import Json

PING = event_frame("ping", {"type": "ping"})
DELTA_HEAD = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":'
DELTAS = {
    Kind.TEXT: b',"delta":{"type":"text_delta","text":',
    Kind.THOUGHT: b',"delta":{"type":"thinking_delta","thinking":',
    Kind.CALL: b',"delta":{"type":"input_json_delta","partial_json":',
}
SIGNATURE = ""
"""Nobody can sign the thoughts of a local model; clients want the field all the same."""


class Anthropic:
    """Frames of `anthropic.messages`. Only the first choice is shown: the dialect knows no others."""

    shows_ids = False

    def __init__(self, context: Context) -> None:
        self._context = context
        self._blocks = Blocks(context.new_parser())

    def start(self, choices: Sequence[Choice]) -> list[bytes]:
        usage = _usage(choices[0].n_prompt, choices[0].n_cached, 0)
        message = self._message([], None, None, usage)
        return [event_frame("message_start", {"type": "message_start", "message": message}), PING]

    def begin(self, choice: Choice) -> list[bytes]:
        del choice
        return []

    def content(self, choice: Choice, piece: Piece, timings: Timings | None) -> list[bytes]:
        del timings
        if choice.index:
            return []
        return [frame for change in self._blocks.feed(piece.text) for frame in _frames(change)]

    def progress(self, choice: Choice, event: Progress, timings: Timings | None) -> list[bytes]:
        del choice, event, timings
        return []

    def heartbeat(self) -> list[bytes]:
        return [PING]

    def end(self, choice: Choice, end: ChoiceEnd) -> list[bytes]:
        if choice.index:
            return []
        frames = [frame for change in self._blocks.close() for frame in _frames(change)]
        reason, word = stop_of(end, has_calls=self._blocks.has_calls)
        delta = {"stop_reason": reason, "stop_sequence": word}
        usage = _final_usage(end, choice.n_thought(self._blocks.thoughts))
        body = {"type": "message_delta", "delta": delta, "usage": usage}
        return [*frames, event_frame("message_delta", body)]

    def finish(self) -> list[bytes]:
        return [event_frame("message_stop", {"type": "message_stop"})]

    def fail(self, problem: Problem, *, is_started: bool) -> list[bytes]:
        body = {"type": "error", "error": problem_fields(problem)}
        return [event_frame("error", body)] if is_started else []

    def cancel(self, event: Cancelled) -> list[bytes]:
        del event
        return []

    def answer(self, choices: Sequence[Choice]) -> object:
        choice = choices[0]
        assert choice.end is not None, "an answer is rendered when every choice has ended"
        blocks = Blocks(self._context.new_parser())
        for _ in (*(blocks.feed(choice.text) if choice.text else ()), *blocks.close()):
            pass
        reason, word = stop_of(choice.end, has_calls=blocks.has_calls)
        usage = _final_usage(choice.end, choice.n_thought(blocks.thoughts))
        return self._message([content_json(block) for block in blocks.all], reason, word, usage)

    def _message(
        self, content: list[Json], reason: str | None, word: str | None, usage: Json
    ) -> Json:
        return {
            "id": f"msg_{self._context.hex_id}",
            "type": "message",
            "role": "assistant",
            "content": content,
            "model": self._context.model,
            "stop_reason": reason,
            "stop_sequence": word,
            "usage": usage,
        }


def _usage(n_prompt: int, n_cached: int, n_predicted: int) -> Json:
    return {
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": n_cached,
        "input_tokens": n_prompt - n_cached,
        "output_tokens": n_predicted,
    }


def _final_usage(end: ChoiceEnd, n_thought: int) -> Json:
    """With what of it were thoughts, what marks them included."""
    usage = _usage(end.n_prompt, end.n_cached, end.n_predicted)
    return usage | {"output_tokens_details": {"thinking_tokens": n_thought}}


def stop_of(end: ChoiceEnd, *, has_calls: bool) -> tuple[str, str | None]:
    """`stop_reason` and `stop_sequence`."""
    word = end.stopping_word or None
    if end.stop_type == "limit":
        return "max_tokens", word
    if has_calls:
        return "tool_use", word
    return ("end_turn" if word is None else "stop_sequence"), word


def _frames(change: Change) -> list[bytes]:
    block = change.block
    match change.step:
        case Step.OPENED:
            body = {"type": "content_block_start", "index": block.index}
            return [event_frame("content_block_start", body | {"content_block": _opening(block)})]
        case Step.GREW:
            text = to_json(change.text)
            return [b"%b%d%b%b}}\n\n" % (DELTA_HEAD, block.index, DELTAS[block.kind], text)]
        case Step.CLOSED:
            stop = {"type": "content_block_stop", "index": block.index}
            return [*_signature(block), event_frame("content_block_stop", stop)]


def _opening(block: Block) -> Json:
    match block.kind:
        case Kind.TEXT:
            return {"type": "text", "text": ""}
        case Kind.THOUGHT:
            return {"type": "thinking", "thinking": "", "signature": ""}
        case Kind.CALL:
            return {"type": "tool_use", "id": block.call_id, "name": block.name, "input": {}}


def _signature(block: Block) -> list[bytes]:
    """Clients want one before a block of thoughts is closed."""
    if block.kind is not Kind.THOUGHT:
        return []
    delta = {"type": "signature_delta", "signature": SIGNATURE}
    body = {"type": "content_block_delta", "index": block.index, "delta": delta}
    return [event_frame("content_block_delta", body)]


def content_json(block: Block) -> Json:
    match block.kind:
        case Kind.TEXT:
            return {"type": "text", "text": block.text}
        case Kind.THOUGHT:
            return {"type": "thinking", "thinking": block.text, "signature": SIGNATURE}
        case Kind.CALL:
            return _opening(block) | {"input": _arguments(block.text)}


def _arguments(text: str) -> object:
    """The input of a tool; what a model left unfinished or is no object counts as none."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}
