"""Google Cloud's prediction protocol: one route that takes requests for all the others in a list.

Each instance says with `@requestFormat` which route it is for: its path, or that in camel case
(`chatCompletions`). Nothing is streamed. As in llama-server an instance that fails is an error in
its place, and the answer as a whole is 200.
"""

import asyncio
from collections.abc import Iterable
from typing import cast

import orjson
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message

from schemas.errors import INVALID_REQUEST, Problem, RequestError
from services.edge.body import JsonObject, read_json
from services.edge.errors import JSON_TYPE, problem_fields
from services.gateway.asking import IDEMPOTENCY_HEADER
from services.gateway.config import GatewaySettings
from services.gateway.dialects.fields import as_list, as_object

FORMAT = "@requestFormat"
MAX_INSTANCES = 128
METHODS = ("POST", "GET")
IDEMPOTENCY = IDEMPOTENCY_HEADER.encode()


class PredictRoute:
    """The handler. app: the whole application, which answers each instance as any other request."""

    def __init__(
        self, app: ASGIApp, routes: Iterable[BaseRoute], settings: GatewaySettings
    ) -> None:
        self._app = app
        self._settings = settings
        self._targets = targets_of(routes)

    async def predict(self, request: Request) -> Response:
        """Answer every instance, all at once. Raises RequestError."""
        body = await read_json(request, self._settings.max_body_bytes)
        instances = as_list(body.get("instances"))
        if instances is None:
            raise RequestError.invalid(
                "request body must include an array field named instances", "instances"
            )
        if len(instances) > MAX_INSTANCES:
            raise RequestError.invalid(
                f"instances array exceeds maximum size of {MAX_INSTANCES}", "instances"
            )
        asked = [self._answer(request, each, number) for number, each in enumerate(instances)]
        found = await asyncio.gather(*asked)
        return Response(orjson.dumps({"predictions": found}), media_type=JSON_TYPE)

    async def _answer(self, request: Request, value: object, number: int) -> object:
        instance = as_object(value)
        if instance is None:
            return _error("each instance must be a JSON object")
        wanted = instance.get(FORMAT)
        if not isinstance(wanted, str):
            return _error(f"each instance must include a string {FORMAT}")
        target = self._targets.get(wanted)
        if target is None:
            return _error(f"no handler registered for {FORMAT}: {wanted}")
        body = {name: field for name, field in instance.items() if name != FORMAT}
        if "stream" in body:
            body["stream"] = False
        return await self._ask(request, number, *target, orjson.dumps(body))

    async def _ask(
        self, request: Request, number: int, method: str, path: str, body: bytes
    ) -> object:
        """The JSON that the route answers. Raises ClientDisconnect."""
        path = self._settings.api_prefix + path
        scope = {**request.scope, "method": method, "path": path, "raw_path": path.encode()}
        scope["state"], scope["headers"] = {}, _headers(request, number)
        given: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
        chunks: list[bytes] = []

        async def receive() -> Message:
            return given.pop() if given else await request.receive()

        async def send(message: Message) -> None:
            chunks.append(message.get("body", b""))

        await self._app(scope, receive, send)
        if not any(chunks):
            raise ClientDisconnect
        return orjson.loads(b"".join(chunks))


def _headers(request: Request, number: int) -> list[tuple[bytes, bytes]]:
    """Those of the request; under one idempotency key each instance has one of its own."""
    suffix = b"#%d" % number
    return [
        (name, value + suffix if name == IDEMPOTENCY else value)
        for name, value in request.headers.raw
    ]


def targets_of(routes: Iterable[BaseRoute]) -> dict[str, tuple[str, str]]:
    """Method and path by every name that an instance may say. Where two paths have the same name in
    camel case, the one below /v1 is meant."""
    plain = [route for route in routes if isinstance(route, Route) and "{" not in route.path]
    paths = sorted({route.path for route in plain}, key=lambda path: not path.startswith("/v1/"))
    methods = {
        path: [m for route in plain if route.path == path for m in route.methods or ()]
        for path in paths
    }
    targets: dict[str, tuple[str, str]] = {}
    for path in paths:
        method = next((each for each in METHODS if each in methods[path]), None)
        if method is not None:
            targets.setdefault(camel_case(path), (method, path))
            targets[path] = (method, path)
    return targets


def camel_case(path: str) -> str:
    """`/v1/chat/completions` as `chatCompletions`."""
    words = path.removeprefix("/v1").strip("/").replace("-", "/").replace("_", "/").split("/")
    first, *rest = words
    return first + "".join(word[:1].upper() + word[1:] for word in rest)


def _error(message: str) -> JsonObject:
    problem = Problem(code=INVALID_REQUEST, message=message)
    return cast(JsonObject, {"error": problem_fields(problem)})
