"""The routes that generate: one endpoint per dialect, the rest is common."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from schemas.errors import RequestError
from services.edge.access import access_of
from services.edge.body import BodyTooLarge, JsonObject, read_json
from services.edge.errors import anthropic_problem_response, headers_of_error, problem_response
from services.gateway.admission import Admission, Ask
from services.gateway.answer import Answers, Refuse
from services.gateway.asking import idempotency_of, priority_of
from services.gateway.config import GatewaySettings
from services.gateway.dialects import anthropic, native, openai_chat, openai_completion
from services.gateway.dialects.fields import NativeRequest

Endpoint = Callable[[Request], Awaitable[Response]]

CONVERSATION_HEADER = "x-conversation-id"
MAX_CONVERSATION_CHARS = 1024


class Dialect(NamedTuple):
    """name: of the projection. translate: the client's JSON into native names. refuse: what an error
    looks like."""

    name: str
    translate: Callable[[JsonObject], NativeRequest]
    refuse: Refuse = problem_response


CHAT = Dialect(openai_chat.DIALECT, openai_chat.translate)
COMPLETION = Dialect(openai_completion.DIALECT, openai_completion.translate)
NATIVE = Dialect(native.DIALECT, native.translate)
INFILL = Dialect(native.DIALECT, native.translate_infill)
MESSAGES = Dialect(anthropic.DIALECT, anthropic.translate, anthropic_problem_response)
DIALECT_OF_PATH = {
    "/completion": NATIVE,
    "/completions": NATIVE,
    "/infill": INFILL,
    "/v1/completions": COMPLETION,
    "/chat/completions": CHAT,
    "/v1/chat/completions": CHAT,
    "/v1/messages": MESSAGES,
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
            try:
                tape = await self._admission.admit(await self._read(request, dialect))
            except BodyTooLarge:
                raise  # the rest of the body is still to be thrown away
            except RequestError as error:
                return dialect.refuse(error.problem, headers=headers_of_error(error))
            return await self._answers.respond(request, tape, dialect.refuse)

        return generate

    async def _read(self, request: Request, dialect: Dialect) -> Ask:
        body = await read_json(request, self._settings.max_body_bytes)
        return Ask(
            dialect=dialect.name,
            body=body,
            native=dialect.translate(body),
            caller=request.state.caller,
            conversation=conversation_of(request),
            access=access_of(request),
            priority=priority_of(request.headers, body),
            idempotency=idempotency_of(
                request.headers, path=request.url.path, dialect=dialect.name, body=body
            ),
        )


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
