"""Cross-origin headers as llama-server sends them by default: any origin, reflected."""

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

METHODS = "GET, POST, DELETE, OPTIONS"


def install_cors(app: Starlette) -> None:
    """Answer every OPTIONS request, and reflect `Origin` on every other answer.

    Add it last, so that it is outermost: browsers send no key with a preflight.
    """
    app.add_middleware(CorsMiddleware)


class CorsMiddleware:
    """Pure ASGI; touches nothing but the start message."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        origin = Headers(scope=scope).get("origin")
        if scope["method"] == "OPTIONS":
            return await _preflight(origin)(scope, receive, send)
        if origin is None:
            return await self._app(scope, receive, send)
        return await self._app(scope, receive, _reflecting(send, origin))


def _preflight(origin: str | None) -> Response:
    headers = {
        "content-type": "text/html",
        "access-control-allow-credentials": "true",
        "access-control-allow-methods": METHODS,
        "access-control-allow-headers": "*",
    }
    if origin is not None:
        headers |= {"access-control-allow-origin": origin, "vary": "Origin"}
    return Response(b"", headers=headers)


def _reflecting(send: Send, origin: str) -> Send:
    async def send_with_origin(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers["access-control-allow-origin"] = origin
            headers.add_vary_header("Origin")
        await send(message)

    return send_with_origin
