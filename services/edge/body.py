"""Request bodies: bounded in size and depth before anything parses them.

Any content type is taken, as in llama-server. Parsers further down (the template engine, the
grammar builder) recurse; they see no body that is nested deeper than MAX_DEPTH.
"""

import asyncio
import codecs
import re
from typing import cast

import orjson
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from schemas.errors import BODY_TOO_LARGE, Problem, RequestError
from services.edge.errors import JSON_TYPE, problem_body
from services.edge.form import form_fields, is_form

MAX_DEPTH = 128
MAX_CONTAINERS = 1_000_000
DRAIN_S = 10.0
CLIENT_CLOSED_REQUEST = 499
JsonObject = dict[str, object]

_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_NO_BRACKET = bytes(set(range(256)) - set(b"[]{}"))
_STEP = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}


class BodyTooLarge(RequestError):
    """The body is over the limit; what was not read of it is still on its way."""

    def __init__(self, max_bytes: int) -> None:
        message = f"The request body is larger than {max_bytes} bytes"
        super().__init__(Problem(code=BODY_TOO_LARGE, message=message))


async def read_body(request: Request, max_bytes: int) -> bytes:
    """The whole body. Raises BodyTooLarge as soon as it is over `max_bytes`, by its announced
    length or by what came; ClientDisconnect if the client goes."""
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > max_bytes:
        raise BodyTooLarge(max_bytes)
    chunks: list[bytes] = []
    n_bytes = 0
    async for chunk in request.stream():
        n_bytes += len(chunk)
        if n_bytes > max_bytes:
            raise BodyTooLarge(max_bytes)
        chunks.append(chunk)
    return b"".join(chunks)


async def read_json(request: Request, max_bytes: int) -> JsonObject:
    """The body as a JSON object; a form becomes one. Raises RequestError."""
    body = await read_body(request, max_bytes)
    content_type = request.headers.get("content-type", "")
    return form_fields(body, content_type) if is_form(content_type) else parse_object(body)


def parse_object(data: bytes) -> JsonObject:
    """`data` as a JSON object: valid UTF-8, no lone surrogates, bounded depth. Raises RequestError."""
    value = parse_json(data)
    if not isinstance(value, dict):
        raise RequestError.invalid("The request body must be a JSON object")
    return cast(JsonObject, value)


def parse_json(data: bytes) -> object:
    """As parse_object, for any JSON. A byte order mark, which Windows' tools write, is no part of it."""
    data = data.removeprefix(codecs.BOM_UTF8)
    check_depth(data)
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise RequestError.invalid(f"The request body is not valid JSON: {error}") from error


def check_depth(data: bytes) -> None:
    """Raise RequestError if `data` nests deeper than MAX_DEPTH. Constant time for small bodies."""
    n_containers = data.count(b"[") + data.count(b"{")
    if n_containers <= MAX_DEPTH:
        return
    brackets = _STRING.sub(b"", data).translate(None, _NO_BRACKET)
    if len(brackets) > 2 * MAX_CONTAINERS:
        raise RequestError.invalid(
            f"The request body has more than {MAX_CONTAINERS} lists and objects"
        )
    depth = 0
    for bracket in brackets:
        depth += _STEP[bracket]
        if depth > MAX_DEPTH:
            raise RequestError.invalid(f"The request body is nested deeper than {MAX_DEPTH} levels")


class BodyTooLargeResponse(Response):
    """413 at once, then the rest of the body is thrown away for a while.

    A connection that closes with unread data is reset, and a client that is still sending would
    lose the answer. Ends when the client stops or hangs up, or after DRAIN_S seconds.
    """

    def __init__(self, problem: Problem) -> None:
        super().__init__(
            problem_body(problem), problem.status, {"connection": "close"}, media_type=JSON_TYPE
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start = {
            "type": "http.response.start",
            "status": self.status_code,
            "headers": self.raw_headers,
        }
        await send(start)
        await send({"type": "http.response.body", "body": self.body, "more_body": True})
        try:
            async with asyncio.timeout(DRAIN_S):
                await _drain(receive)
        except TimeoutError:
            pass
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _drain(receive: Receive) -> None:
    while True:
        message = await receive()
        if message["type"] != "http.request" or not message.get("more_body", False):
            return


def install_body_handlers(app: Starlette) -> None:
    """Answer what reading a body may raise, wherever a route reads one."""
    app.add_exception_handler(BodyTooLarge, on_body_too_large)
    app.add_exception_handler(ClientDisconnect, on_client_gone)


async def on_body_too_large(_request: Request, error: Exception) -> Response:
    """Exception handler of BodyTooLarge."""
    assert isinstance(error, BodyTooLarge)
    return BodyTooLargeResponse(error.problem)


async def on_client_gone(_request: Request, _error: Exception) -> Response:
    """Exception handler of ClientDisconnect: nobody reads this answer."""
    return Response(status_code=CLIENT_CLOSED_REQUEST)
