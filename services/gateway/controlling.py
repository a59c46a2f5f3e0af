"""POST /v1/chat/completions/control: orders to an answer while it is being generated.

Nothing is written to the log here: the engine that grows it obeys, and notes it as `controlled`.
"""

import orjson
from starlette.requests import Request
from starlette.responses import Response

from schemas.errors import RequestError
from schemas.ids import generation_id_of, is_generation_id
from schemas.rpc import ControlGeneration
from services.edge.body import JsonObject, read_json
from services.edge.errors import JSON_TYPE
from services.gateway.config import GatewaySettings
from services.gateway.engines import Engines
from services.gateway.generating import conversation_of
from services.streams.conversations import Conversations

REASONING_END = "reasoning_end"
PREFIX = "chatcmpl-"
UNKNOWN = "no active completion for this id"


class ControlRoutes:
    """One endpoint. The generation is named by the answer's `id`, or by its conversation's header."""

    def __init__(
        self, engines: Engines, conversations: Conversations, settings: GatewaySettings
    ) -> None:
        self._engines = engines
        self._conversations = conversations
        self._settings = settings

    async def control(self, request: Request) -> Response:
        """llama-server's answers: 200 also where the order comes too late, with the reason."""
        body = await read_json(request, self._settings.max_body_bytes)
        generation_id = await self._generation_id(request, body)
        if body.get("action") != REASONING_END:
            raise RequestError.invalid("unknown control action", "action")
        if generation_id is None:
            return _answer(UNKNOWN)
        order = ControlGeneration(
            generation_id=generation_id, action=REASONING_END, caller=request.state.caller
        )
        taken = await self._engines.control(order)
        return _answer(UNKNOWN if taken is None else taken.message)

    async def _generation_id(self, request: Request, body: JsonObject) -> str | None:
        """None where there is no such generation."""
        if isinstance(shown := body.get("id"), str) and shown:
            return shown if is_generation_id(shown) else generation_id_of(shown, PREFIX)
        if (conversation := conversation_of(request)) is None:
            raise RequestError.invalid("missing completion id", "id")
        entry = await self._conversations.find(request.state.caller, conversation)
        return None if entry is None else entry.generation_id


def _answer(message: str) -> Response:
    """message: why nothing was done; empty if it was."""
    found = {"success": False, "message": message} if message else {"success": True}
    return Response(orjson.dumps(found), media_type=JSON_TYPE)
