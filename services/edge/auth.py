"""API keys: who may ask what, and under which id the log remembers the caller."""

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from schemas.errors import AUTHENTICATION, Problem
from services.edge.access import Access
from services.edge.errors import problem_response
from services.edge.key_ring import KeyRing, key_id
from services.edge.scopes import missing, scope_of

__all__ = ["AuthMiddleware", "install_auth", "is_public", "key_id", "key_of"]

PUBLIC_PATHS = frozenset(
    {"/", "/health", "/v1/health", "/index.html", "/sw.js", "/manifest.webmanifest"}
)
STATIC_PREFIXES = ("/_app/", "/static/")
BEARER = "Bearer "
INVALID_KEY = Problem(code=AUTHENTICATION, message="Invalid API Key")
NOBODY = frozenset[str]()


def key_of(headers: Headers) -> str:
    """The key that a request carries, "" for none. As in llama-server, Authorization wins over
    X-Api-Key, and `Bearer ` may stand before either."""
    value = headers.get("authorization") or headers.get("x-api-key") or ""
    return value.removeprefix(BEARER)


def is_public(path: str) -> bool:
    """Whether `path` needs no key."""
    return path in PUBLIC_PATHS or path.startswith(STATIC_PREFIXES)


def install_auth(app: Starlette, keys: KeyRing) -> None:
    """Refuse requests without a key of `keys` (401), or with one that is not for this (403).

    Every route then finds in `request.state` the caller's key id as `caller` ("" without keys), its
    `scopes`, and the whole `access`.
    """
    app.add_middleware(AuthMiddleware, keys=keys)


class AuthMiddleware:
    """Pure ASGI."""

    def __init__(self, app: ASGIApp, keys: KeyRing) -> None:
        self._app = app
        self._keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        access = self._keys.find(key_of(Headers(scope=scope)))
        if not is_public(scope["path"]) and (problem := _refusal(access, scope)):
            return await problem_response(problem)(scope, receive, send)
        access = access or Access(scopes=NOBODY)
        state = scope.setdefault("state", {})
        state["access"], state["caller"] = access, access.caller
        state["scopes"] = access.scopes
        return await self._app(scope, receive, send)


def _refusal(access: Access | None, scope: Scope) -> Problem | None:
    if access is None:
        return INVALID_KEY
    needed = scope_of(scope["method"], scope["path"])
    return missing(needed) if needed and needed not in access.scopes else None
