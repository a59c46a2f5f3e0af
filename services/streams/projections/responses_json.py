"""The JSON objects of OpenAI's Responses API: the response, its items, their parts.

All ids derive from the generation's, so that every reader of a log sees the same ones.
"""

from collections.abc import Sequence
from typing import cast

import orjson

from schemas.events import ChoiceEnd
from services.streams.projections.blocks import Block, Kind
from services.streams.projections.context import Context
from services.streams.projections.shapes import Json

DIALECT = "openai.responses"
QUEUED = "queued"
IN_PROGRESS = "in_progress"
COMPLETED = "completed"
INCOMPLETE = "incomplete"
FAILED = "failed"
CANCELLED = "cancelled"

ITEM_PREFIXES = {Kind.TEXT: "msg", Kind.THOUGHT: "rs", Kind.CALL: "fc"}
ECHOED: Json = {
    "background": False,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "safety_identifier": None,
    "service_tier": "default",
    "store": True,
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "truncation": "disabled",
    "user": None,
}
"""Fields of the request that a response repeats, and what they are where the request is silent."""


def response_id(hex_id: str) -> str:
    """hex_id: the generation's, 32 digits."""
    return f"resp_{hex_id}"


def request_of(context: Context) -> Json:
    """The client's own request; empty where it spoke another dialect."""
    requested = context.requested
    if requested.dialect != DIALECT:
        return {}
    return cast(Json, orjson.loads(requested.request))


class ResponseObject:
    """Makes the response object of one generation, in any state."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._request = request_of(context)
        echoed = {name: self._request.get(name) for name in ECHOED}
        self._echoed = {
            name: ECHOED[name] if value is None else value for name, value in echoed.items()
        }

    @property
    def is_background(self) -> bool:
        return self._echoed["background"] is True

    def json(
        self,
        status: str,
        output: Sequence[Json] = (),
        *,
        usage: Json | None = None,
        error: Json | None = None,
    ) -> Json:
        """The whole object. usage: once it is known."""
        context = self._context
        reason = {"reason": "max_output_tokens"} if status == INCOMPLETE else None
        return {
            "id": response_id(context.hex_id),
            "object": "response",
            "created_at": context.created,
            "completed_at": context.completed if status == COMPLETED else None,
            "status": status,
            "error": error,
            "incomplete_details": reason,
            "model": context.model,
            "output": list(output),
            **self._echoed,
            **self._sampling(),
            "reasoning": self._reasoning(),
            "text": self._request.get("text") or {"format": {"type": "text"}},
            "usage": usage,
        }

    def _sampling(self) -> Json:
        """What was asked for, else what the server chose."""
        sampling = self._context.params.sampling
        values = {"temperature": sampling.temperature, "top_p": sampling.top_p}
        return {name: self._request.get(name, value) for name, value in values.items()}

    def _reasoning(self) -> Json:
        given = self._request.get("reasoning")
        asked = cast(Json, given) if isinstance(given, dict) else {}
        return {"effort": asked.get("effort"), "summary": asked.get("summary")}


def usage_json(end: ChoiceEnd, n_thought: int) -> Json:
    return {
        "input_tokens": end.n_prompt,
        "input_tokens_details": {"cached_tokens": end.n_cached},
        "output_tokens": end.n_predicted,
        "output_tokens_details": {"reasoning_tokens": n_thought},
        "total_tokens": end.n_prompt + end.n_predicted,
    }


def item_id(context: Context, block: Block) -> str:
    return f"{ITEM_PREFIXES[block.kind]}_{context.hex_id}{block.index:02x}"


def item_json(context: Context, block: Block, status: str, logprobs: Sequence[Json] = ()) -> Json:
    """One output item. status: in_progress (what it holds is not shown yet), completed, incomplete."""
    head: Json = {"id": item_id(context, block), "status": status}
    if block.kind is Kind.CALL:
        call = {"call_id": block.call_id, "name": block.name, "arguments": block.text}
        return {**head, "type": "function_call", **call}
    is_empty = status == IN_PROGRESS and not block.parts
    content = [] if is_empty else [part_json(block, logprobs)]
    if block.kind is Kind.TEXT:
        return {**head, "type": "message", "role": "assistant", "content": content}
    extra = {"summary": [], "encrypted_content": None}
    return {**head, "type": "reasoning", "content": content, **extra}


def part_json(block: Block, logprobs: Sequence[Json] = (), *, text: str | None = None) -> Json:
    """The part that holds a block's text; a call has none. text: where not all of it."""
    shown = block.text if text is None else text
    if block.kind is Kind.THOUGHT:
        return {"type": "reasoning_text", "text": shown}
    details = {"annotations": [], "logprobs": list(logprobs)}
    return {"type": "output_text", "text": shown, **details}
