"""Before the first load every route answers 503 "Loading model", as llama-server's do.

What needs no model is let through: the pages of the web UI, and the read side, which replays logs of
earlier runs.
"""

from starlette.applications import Starlette
from starlette.types import ASGIApp, Receive, Scope, Send

from services.edge.auth import STATIC_PREFIXES
from services.edge.errors import problem_response
from services.gateway.models import ServedModel

OPEN_PATHS = frozenset({"/", "/index.html", "/sw.js", "/manifest.webmanifest"})
OPEN_PREFIXES = (
    *STATIC_PREFIXES,
    "/v1/stream",
    "/v1/generations/",
    "/v1/audit/",
    "/v1/responses/",
    "/responses/",
)


def install_readiness(app: Starlette, model: ServedModel) -> None:
    """Refuse requests until `model` has been loaded once."""
    app.add_middleware(ReadinessMiddleware, model=model)


class ReadinessMiddleware:
    """Pure ASGI; comes before authentication, so that a load balancer needs no key to see the 503."""

    def __init__(self, app: ASGIApp, model: ServedModel) -> None:
        self._app = app
        self._model = model

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or self._model.was_loaded or _is_open(scope["path"]):
            return await self._app(scope, receive, send)
        return await problem_response(self._model.problem())(scope, receive, send)


def _is_open(path: str) -> bool:
    return path in OPEN_PATHS or path.startswith(OPEN_PREFIXES)
