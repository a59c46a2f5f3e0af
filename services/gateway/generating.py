"""The routes that generate: one endpoint per dialect, the rest is common."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from schemas.errors import RequestError
from services.edge.body import JsonObject, read_json
from services.gateway.admission import Admission, Ask
from services.gateway.answer import Answers
from services.gateway.config import GatewaySettings
from services.gateway.dialects import native, openai_chat, openai_completion
from services.gateway.dialects.fields import NativeRequest

Endpoint = Callable[[Request], Awaitable[Response]]

CONVERSATION_HEADER = "x-conversation-id"
MAX_CONVERSATION_CHARS = 1024


class Dialect(NamedTuple):
    """name: of the projection. translate: the client's JSON into native names."""

    name: str
    translate: Callable[[JsonObject], NativeRequest]


CHAT = Dialect(openai_chat.DIALECT, openai_chat.translate)
COMPLETION = Dialect(openai_completion.DIALECT, openai_completion.translate)
NATIVE = Dialect(native.DIALECT, native.translate)
DIALECT_OF_PATH = {
    "/completion": NATIVE,
    "/completions": NATIVE,
    "/v1/completions": COMPLETION,
    "/chat/completions": CHAT,
    "/v1/chat/completions": CHAT,
}


class GeneratingRoutes:
    """Makes the endpoints."""

    def __init__(self, admission: Admission, answers: Answers, settings: GatewaySettings) -> None:
        self._admission = admission
        self._answers = answers
        self._settings = settings

    def endpoint(self, dialect: Dialect) -> Endpoint:
        """The endpoint that speaks `dialect`."""

        async def generate(request: Request) -> Response:
            body = await read_json(request, self._settings.max_body_bytes)
            ask = Ask(
                dialect=dialect.name,
                body=body,
                native=dialect.translate(body),
                caller=request.state.caller,
                conversation=conversation_of(request),
            )
            tape = await self._admission.admit(ask)
            return await self._answers.respond(request, tape)

        return generate


def conversation_of(request: Request) -> str | None:
    """The id under which the client wants to find the answer again; None if it gave none.

    Header bytes are read as UTF-8, as in the query of /v1/stream. Raises RequestError.
    """
    raw = request.headers.get(CONVERSATION_HEADER, "").strip()
    if not raw:
        return None
    if len(raw) > MAX_CONVERSATION_CHARS:
        raise RequestError.invalid(
            f"X-Conversation-Id is longer than {MAX_CONVERSATION_CHARS} characters"
        )
    return raw.encode("latin-1").decode("utf-8", "replace")
