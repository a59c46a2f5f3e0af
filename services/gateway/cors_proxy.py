"""`/cors-proxy?url=…` (`--ui-mcp-proxy`): lets a page reach servers whose browsers' rules forbid it.

As in llama-server the client's own headers stay here; those named with a prefix go on without it.
"""

import logging
from collections.abc import Iterable

import orjson
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from schemas.errors import SERVER, Problem
from services.edge.body import read_body
from services.edge.errors import JSON_TYPE, problem_response
from services.gateway.config import GatewaySettings
from services.gateway.outbound import Headers, Incoming, Outgoing, Unreachable, parse_target, send

log = logging.getLogger(__name__)

PREFIX = "x-llama-server-proxy-header-"
OURS = frozenset({"host", "content-length", "connection", "transfer-encoding", "accept-encoding"})
"""Headers of the connection to the target, which nobody else sets."""
DROPPED = frozenset(
    {"server", "date", "connection", "keep-alive", "transfer-encoding", "content-length", "upgrade"}
)
CORS = "access-control-"
DISABLED = {
    "error": {"code": 403, "message": "this feature is disabled", "type": "feature_disabled"}
}


class CorsProxy:
    """The handler of both methods."""

    def __init__(self, settings: GatewaySettings) -> None:
        self._settings = settings

    async def forward(self, request: Request) -> Response:
        """The target's answer. Raises RequestError for a bad address."""
        body = await read_body(request, self._settings.max_body_bytes)
        outgoing = Outgoing(
            method=request.method,
            target=parse_target(request.query_params.get("url", "")),
            headers=passed_on(request.headers.items()),
            body=body,
        )
        log.info("action=proxied method=%s to=%s", request.method, outgoing.target.authority)
        try:
            answer = await send(outgoing)
        except Unreachable as error:
            return problem_response(Problem(code=SERVER, message=f"proxy error: {error}"))
        response = _Passing(answer)
        response.raw_headers = [(k.encode(), v.encode("latin-1")) for k, v in kept(answer.headers)]
        return response


class _Passing(StreamingResponse):
    """Hangs up on the target in every case."""

    def __init__(self, answer: Incoming) -> None:
        super().__init__(answer.body, answer.status)
        self._hang_up = answer.hang_up

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._hang_up()


async def refuse(_request: Request) -> Response:
    """For what is switched off; llama-server's words."""
    return Response(orjson.dumps(DISABLED), 403, media_type=JSON_TYPE)


def passed_on(headers: Iterable[tuple[str, str]]) -> Headers:
    """What the client wants to be sent. Names come in lower case."""
    named = ((name[len(PREFIX) :], value) for name, value in headers if name.startswith(PREFIX))
    return tuple((name, value) for name, value in named if name and name not in OURS)


def kept(headers: Iterable[tuple[str, str]]) -> Headers:
    """What of the target's headers the client gets: the connection's and CORS are ours to say."""
    return tuple(
        (name, value)
        for name, value in headers
        if name not in DROPPED and not name.startswith(CORS)
    )
