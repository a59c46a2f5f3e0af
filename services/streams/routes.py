"""Resumable streams over HTTP: llama-server's protocol, plus `Last-Event-ID`.

A conversation is seen by the caller who owns it and by nobody else: to others it does not exist.
"""

import re
import time
from typing import cast

import orjson
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from schemas.errors import RequestError
from schemas.events import Cancelled, Requested
from schemas.ids import generation_id_of, is_generation_id
from schemas.tasks import ConversationEntry
from services.edge.body import parse_object, read_body
from services.edge.disconnect import unless_gone
from services.edge.errors import JSON_TYPE, problem_response
from services.edge.sse import SseResponse
from services.streams.conversations import Conversations
from services.streams.ending import WRITER, LogEnder
from services.streams.errors import StreamGone, StreamNotFound, StreamsError
from services.streams.forgotten import Forgotten, may_show
from services.streams.hub import Hub
from services.streams.projections import VIEWS
from services.streams.tape import Rendering, Tape

GENERATION_HEADER = "x-generation-id"
"""On answers of the generation itself, so that a 503 of its own is told from one of this server."""
MAX_BODY_BYTES = 1024 * 1024
_ID_PREFIX = re.compile(r"\A(chatcmpl-|resp_|msg_)")
_NUMBER = re.compile(r"[0-9]{1,18}", re.ASCII)


class StreamRoutes:
    """The handlers. Raise RequestError, BusUnavailable, ClientDisconnect; the application maps them."""

    def __init__(
        self, hub: Hub, conversations: Conversations, forgotten: Forgotten, ender: LogEnder
    ) -> None:
        self._hub = hub
        self._forgotten = forgotten
        self._conversations = conversations
        self._ender = ender

    def router(self) -> APIRouter:
        router = APIRouter()
        router.add_route("/v1/stream", self.replay, methods=["GET"])
        router.add_route("/v1/stream", self.delete, methods=["DELETE"])
        router.add_route("/v1/streams/lookup", self.lookup, methods=["POST"])
        path = "/v1/generations/{generation_id}/stream"
        router.add_route(path, self.render, methods=["GET"])
        return router

    async def replay(self, request: Request) -> Response:
        """What a conversation's stream holds from an offset on, then what it still becomes.

        `from` is in bytes; `Last-Event-ID`, which wins, is the number of the last frame received.
        """
        entry = await self._conversations.find(_caller(request), _conversation_id(request))
        if entry is None:
            raise _not_found()
        offset = _offset(request)
        return await self._open(request, entry.generation_id, offset, None)

    async def render(self, request: Request) -> Response:
        """A generation of the caller's in the dialect that the query names with `as`, as a stream.

        Its offsets are those of this rendering: bytes with `from`, frames with `Last-Event-ID`.
        """
        generation_id = _generation_id(request)
        view, offset = request.query_params.get("as", ""), _offset(request)
        if view not in VIEWS:
            known = ", ".join(name for name in VIEWS if name)
            raise RequestError.invalid(f"'as' must be one of {known}", "as")
        if generation_id is None or await self._forgotten.has(generation_id):
            raise _not_found()
        return await self._open(request, generation_id, offset, Rendering(view))

    async def lookup(self, request: Request) -> Response:
        """The named conversations of this caller that have a stream."""
        ids = _ids(await read_body(request, MAX_BODY_BYTES))
        entries = await self._conversations.lookup(_caller(request), ids)
        return Response(orjson.dumps([self._view(each) for each in entries]), media_type=JSON_TYPE)

    async def delete(self, request: Request) -> Response:
        """Stop the conversation's generation and forget the stream. Idempotent."""
        caller, conversation_id = _caller(request), _conversation_id(request)
        entry = await self._conversations.find(caller, conversation_id)
        if entry is not None:
            at_ms = time.time_ns() // 1_000_000
            event = Cancelled(by=WRITER, reason="deleted", at_ms=at_ms)
            await self._ender.end(entry.generation_id, event)
            await self._conversations.remove(caller, conversation_id)
        return Response(status_code=204)

    async def _open(
        self,
        request: Request,
        generation_id: str,
        offset: tuple[int, int],
        rendering: Rendering | None,
    ) -> Response:
        own = {GENERATION_HEADER: generation_id}
        try:
            with await self._hub.open(generation_id, rendering=rendering) as tape:
                if rendering is not None and not may_show(_requested(tape), _caller(request)):
                    raise _not_found()
                if not tape.is_started:
                    await unless_gone(request, tape.wait_started())
                problem = tape.projection.failed_before_start
                if problem is not None:
                    return problem_response(problem, headers=own)
                return SseResponse(tape.read(*offset), headers=own)
        except StreamNotFound as error:
            raise _not_found() from error
        except StreamGone as error:
            is_own = error.caller == _caller(request)
            raise (RequestError.not_found(str(error)) if is_own else _not_found()) from error
        except StreamsError as error:
            raise RequestError.unavailable(f"The stream cannot be read now: {error}") from error

    def _view(self, entry: ConversationEntry) -> dict[str, object]:
        tape = None if entry.is_done else self._hub.peek(entry.generation_id)
        return {
            "conversation_id": entry.conversation_id,
            "is_done": entry.is_done,
            "total_bytes": entry.n_bytes if tape is None else tape.n_bytes,
            "started_at": entry.started_at_s,
            "completed_at": entry.completed_at_s,
        }


def _caller(request: Request) -> str:
    """The key id that the authentication has put there; "" where no keys are asked for."""
    return cast(str, getattr(request.state, "caller", ""))


def _generation_id(request: Request) -> str | None:
    """The one in the path, as such or as the ids of answers write it."""
    shown = request.path_params["generation_id"]
    return shown if is_generation_id(shown) else generation_id_of(_ID_PREFIX.sub("", shown))


def _requested(tape: Tape) -> Requested:
    return tape.projection.requested


def _conversation_id(request: Request) -> str:
    conversation_id = request.query_params.get("conv_id", "")
    if not conversation_id:
        raise RequestError.invalid("Missing conversation id in path", "conv_id")
    return conversation_id


def _offset(request: Request) -> tuple[int, int]:
    """Byte and frame to begin after; one of them is 0."""
    last_event_id = request.headers.get("last-event-id", "")
    if last_event_id:
        return 0, _number(last_event_id, "Invalid 'Last-Event-ID'", "Last-Event-ID")
    from_byte = request.query_params.get("from", "")
    return _number(from_byte, "Invalid 'from' offset", "from") if from_byte else 0, 0


def _number(text: str, message: str, name: str) -> int:
    if _NUMBER.fullmatch(text) is None:
        raise RequestError.invalid(message, name)
    return int(text)


def _ids(body: bytes) -> list[str]:
    """The conversation ids of a lookup; what is no text is left out, as llama-server does."""
    try:
        value = parse_object(body).get("conversation_ids")
    except RequestError as error:
        raise RequestError.invalid(f"invalid body: {error}") from error
    ids = cast("list[object]", value) if isinstance(value, list) else []
    return [each for each in ids if isinstance(each, str) and each]


def _not_found() -> RequestError:
    return RequestError.not_found("Stream not found or expired")
