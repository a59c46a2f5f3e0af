"""Every path below a prefix (`--api-prefix`)."""

from starlette.applications import Starlette
from starlette.types import ASGIApp, Receive, Scope, Send

from schemas.errors import NOT_FOUND, Problem
from services.edge.errors import problem_response

ELSEWHERE = Problem(code=NOT_FOUND, message="File Not Found")


def install_prefix(app: Starlette, prefix: str) -> None:
    """Serve below `prefix` what is served below nothing else; add it before CORS."""
    if prefix:
        app.add_middleware(PrefixMiddleware, prefix=prefix)


class PrefixMiddleware:
    """Pure ASGI: takes the prefix off, so that nobody behind it knows of it."""

    def __init__(self, app: ASGIApp, prefix: str) -> None:
        self._app = app
        self._prefix = prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        path: str = scope["path"]
        if not path.startswith(f"{self._prefix}/"):
            return await problem_response(ELSEWHERE)(scope, receive, send)
        inner = {**scope, "path": path[len(self._prefix) :]}
        return await self._app(inner, receive, send)
