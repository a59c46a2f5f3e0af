"""What a key must be good for, by method and path. Pure.

Every route is covered: what only tells needs `read`, the rest `generate`. What shows everybody's
generations needs `admin`, and its routes say so themselves (`require_scope`).
"""

from starlette.requests import Request

from schemas.errors import PERMISSION, Problem, RequestError
from schemas.keys import ADMIN, GENERATE, READ

ADMIN_PREFIXES = ("/v1/audit",)
HOW_TO_ADMINISTER = "; start the server with --admin-api-key, or create one: llamatape keys create NAME --scope admin"
TELLING_METHODS = ("GET", "HEAD")
ACTING_GETS = frozenset({"/cors-proxy"})
TELLING_POSTS = frozenset(
    {
        "/tokenize",
        "/detokenize",
        "/apply-template",
        "/chat/completions/input_tokens",
        "/v1/chat/completions/input_tokens",
        "/responses/input_tokens",
        "/v1/responses/input_tokens",
        "/v1/messages/count_tokens",
        "/v1/streams/lookup",
    }
)


def scope_of(method: str, path: str) -> str:
    """The scope that a request needs; empty where its route asks for one."""
    if path.startswith(ADMIN_PREFIXES):
        return ""
    is_telling = method in TELLING_METHODS and path not in ACTING_GETS
    return READ if is_telling or path in TELLING_POSTS else GENERATE


def missing(scope: str) -> Problem:
    hint = HOW_TO_ADMINISTER if scope == ADMIN else ""
    message = f"This needs an API key with the scope '{scope}'{hint}"
    return Problem(code=PERMISSION, message=message)


def require_scope(request: Request, scope: str) -> None:
    """Raise RequestError (403) unless the caller's key has `scope`. For routes that shall not depend
    on where they are mounted."""
    if scope not in request.state.scopes:
        raise RequestError(missing(scope))
