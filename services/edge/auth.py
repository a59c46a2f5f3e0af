"""API keys: who may ask, and under which id the log remembers the caller."""

import hashlib
import hmac
from collections.abc import Iterable

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from schemas.errors import AUTHENTICATION, Problem
from services.edge.errors import problem_response

PUBLIC_PATHS = frozenset({"/", "/health", "/v1/health", "/index.html", "/sw.js"})
STATIC_PREFIXES = ("/_app/", "/static/")
BEARER = "Bearer "
KEY_ID_CHARS = 12
INVALID_KEY = Problem(code=AUTHENTICATION, message="Invalid API Key")


def key_id(key: str) -> str:
    """The public name of a key: the first 12 hexadecimal digits of its SHA-256."""
    return _digest(key).hex()[:KEY_ID_CHARS]


def key_of(headers: Headers) -> str:
    """The key that a request carries, "" for none. As in llama-server, Authorization wins over
    X-Api-Key, and `Bearer ` may stand before either."""
    value = headers.get("authorization") or headers.get("x-api-key") or ""
    return value.removeprefix(BEARER)


def is_public(path: str) -> bool:
    """Whether `path` needs no key."""
    return path in PUBLIC_PATHS or path.startswith(STATIC_PREFIXES)


def install_auth(app: Starlette, api_keys: Iterable[str]) -> None:
    """Refuse requests without one of `api_keys`; with no keys everybody may ask.

    Every route then finds the caller's key id in `request.state.caller` ("" without keys).
    """
    app.add_middleware(AuthMiddleware, api_keys=tuple(api_keys))


class AuthMiddleware:
    """Pure ASGI; keeps digests only, and compares all of them in constant time."""

    def __init__(self, app: ASGIApp, api_keys: tuple[str, ...]) -> None:
        self._app = app
        self._digests = tuple(_digest(key) for key in api_keys)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        caller = self._caller(Headers(scope=scope))
        if caller is None and not is_public(scope["path"]):
            return await problem_response(INVALID_KEY)(scope, receive, send)
        scope.setdefault("state", {})["caller"] = caller or ""
        return await self._app(scope, receive, send)

    def _caller(self, headers: Headers) -> str | None:
        """The caller's key id; None if keys are demanded and the request has none of them."""
        if not self._digests:
            return ""
        key = key_of(headers)
        matches = [hmac.compare_digest(_digest(key), known) for known in self._digests]
        return key_id(key) if any(matches) else None


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
