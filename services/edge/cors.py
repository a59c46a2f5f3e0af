"""Cross-origin headers as llama-server sends them; by default any origin, reflected."""

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from services.edge.cors_policy import CorsPolicy


def install_cors(app: Starlette, policy: CorsPolicy | None = None) -> None:
    """Answer every OPTIONS request, and tell `policy` on every other answer.

    Add it last, so that it is outermost: browsers send no key with a preflight.
    """
    app.add_middleware(CorsMiddleware, policy=policy or CorsPolicy())


class CorsMiddleware:
    """Pure ASGI; touches nothing but the start message."""

    def __init__(self, app: ASGIApp, policy: CorsPolicy) -> None:
        self._app = app
        self._policy = policy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        origin = Headers(scope=scope).get("origin")
        if scope["method"] == "OPTIONS":
            preflight = Response(b"", headers=self._policy.preflight(origin))
            return await preflight(scope, receive, send)
        allowed = self._policy.allowed(origin)
        if allowed is None:
            return await self._app(scope, receive, send)
        return await self._app(scope, receive, self._telling(send, allowed))

    def _telling(self, send: Send, allowed: str) -> Send:
        async def send_with_origin(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["access-control-allow-origin"] = allowed
                if self._policy.reflects:
                    headers.add_vary_header("Origin")
            await send(message)

        return send_with_origin
