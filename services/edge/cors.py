"""Cross-origin headers as llama-server sends them; by default any origin, reflected."""

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from services.edge.cased import Cased
from services.edge.cors_policy import ALLOW_ORIGIN, CorsPolicy


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
            return await _answer(self._policy.preflight(origin), send)
        allowed = self._policy.allowed(origin)
        if allowed is None:
            return await self._app(scope, receive, send)
        return await self._app(scope, receive, self._telling(send, allowed))

    def _telling(self, send: Send, allowed: str) -> Send:
        async def send_with_origin(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                if self._policy.reflects:
                    headers.add_vary_header("Origin")
                headers.raw.append((Cased(ALLOW_ORIGIN, "ascii"), allowed.encode("latin-1")))
            await send(message)

        return send_with_origin


async def _answer(headers: dict[str, str], send: Send) -> None:
    raw = [(Cased(name, "ascii"), value.encode("latin-1")) for name, value in headers.items()]
    raw += [(b"content-type", b"text/html"), (b"content-length", b"0")]
    await send({"type": "http.response.start", "status": 200, "headers": raw})
    await send({"type": "http.response.body", "body": b""})
