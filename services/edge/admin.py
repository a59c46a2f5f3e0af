"""Routes that only an operator may use: an admin key besides, or instead of, a caller's."""

import hashlib
import hmac
from collections.abc import Iterable

from starlette.requests import Request

from schemas.errors import AUTHENTICATION, PERMISSION, Problem, RequestError
from services.edge.auth import key_id, key_of

ADMIN_SCOPE = "admin"
NO_ADMIN_KEY = (
    "This server has no admin key; start it with --admin-api-key or --admin-api-key-file, or create "
    "a key with the scope admin"
)
NOT_ADMIN = "This key may not do that; use an admin key"
UNKNOWN_KEY = "Invalid API Key: an admin key is needed here"


class AdminGate:
    """Lets admin keys through. Keeps digests only, and compares all of them in constant time."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._digests = tuple(_digest(key) for key in keys)

    def check(self, request: Request) -> str:
        """The key id of the operator who asks. Raises RequestError (401 or 403).

        A key that authentication has found to have the scope `admin` is as good as one of ours.
        """
        key = key_of(request.headers)
        matches = [hmac.compare_digest(_digest(key), known) for known in self._digests]
        if any(matches):
            return key_id(key)
        caller = getattr(request.state, "caller", "")
        if ADMIN_SCOPE in getattr(request.state, "scopes", ()):
            return caller
        raise RequestError(self._problem(is_known=bool(caller)))

    def _problem(self, *, is_known: bool) -> Problem:
        if is_known:
            return Problem(code=PERMISSION, message=NOT_ADMIN)
        if not self._digests:
            return Problem(code=PERMISSION, message=NO_ADMIN_KEY)
        return Problem(code=AUTHENTICATION, message=UNKNOWN_KEY)


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
