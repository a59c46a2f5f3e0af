"""Error bodies and exception handlers, in llama-server's shape: `{"error": {code, message, type}}`.

The status of a code stands in `schemas.errors.STATUS_OF_CODE`, nowhere else. No answer ever holds a
traceback or the text of an unexpected exception: those go to the log.
"""

import logging
from collections.abc import Iterable

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from schemas.errors import (
    INVALID_REQUEST,
    NOT_FOUND,
    RATE_LIMIT,
    SERVER,
    UNAVAILABLE,
    Problem,
    RequestError,
)

log = logging.getLogger(__name__)

JSON_TYPE = "application/json; charset=utf-8"
EXTRA_FIELDS = ("param", "n_prompt_tokens", "n_ctx")
RETRY_AFTER_S = 1
RATE_LIMIT_CODE = "rate_limit_exceeded"
"""What OpenAI's clients look for under `code`; llama-server knows no such error."""
BUSY = Problem(
    code=UNAVAILABLE,
    message="The service is not available right now, try again soon",
    retry_after_s=RETRY_AFTER_S,
)


class RefusedWithHeaders(RequestError):
    """The request cannot be served, and these headers say more about it."""

    def __init__(self, problem: Problem, headers: dict[str, str] | None = None) -> None:
        super().__init__(problem)
        self.headers = headers or {}


def headers_of_error(error: RequestError) -> dict[str, str]:
    return error.headers if isinstance(error, RefusedWithHeaders) else {}


def problem_fields(problem: Problem, status: int | None = None) -> dict[str, object]:
    """What stands under `error` for `problem`. status: where the table's is not meant."""
    fields: dict[str, object] = {
        "code": RATE_LIMIT_CODE if problem.code == RATE_LIMIT else status or problem.status,
        "message": problem.message,
        "type": problem.code,
    }
    for name in EXTRA_FIELDS:
        if (value := getattr(problem, name)) is not None:
            fields[name] = value
    return fields


def problem_body(problem: Problem, status: int | None = None) -> bytes:
    """The whole JSON body for `problem`."""
    return orjson.dumps({"error": problem_fields(problem, status)})


def problem_response(
    problem: Problem, status: int | None = None, headers: dict[str, str] | None = None
) -> Response:
    """The response for `problem`, with Retry-After where it may pass."""
    extra = {} if problem.retry_after_s is None else {"retry-after": str(problem.retry_after_s)}
    return Response(
        problem_body(problem, status),
        status_code=status or problem.status,
        media_type=JSON_TYPE,
        headers=extra | (headers or {}),
    )


def anthropic_problem_response(problem: Problem, headers: dict[str, str] | None = None) -> Response:
    """The same for clients that look for Anthropic's `{"type": "error", "error": …}`."""
    response = problem_response(problem, headers=headers)
    response.body = b'{"type":"error",' + bytes(response.body)[1:]
    response.headers["content-length"] = str(len(response.body))
    return response


def install_error_handlers(app: Starlette, *, unavailable: Iterable[type[Exception]] = ()) -> None:
    """Map every exception of a route to a response.

    unavailable: exceptions that mean "try again soon" (the bus's); answered with 503.
    """
    app.add_exception_handler(RequestError, _on_request_error)
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_exception_handler(Exception, _on_unexpected)
    for kind in unavailable:
        app.add_exception_handler(kind, _on_unavailable)


async def _on_request_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestError)
    return problem_response(error.problem, headers=headers_of_error(error))


async def _on_unavailable(request: Request, error: Exception) -> Response:
    log.warning("action=unavailable path=%s error=%r", request.url.path, error)
    return problem_response(BUSY)


async def _on_http_exception(_request: Request, error: Exception) -> Response:
    """Unknown routes and methods, as Starlette reports them."""
    assert isinstance(error, HTTPException)
    status = error.status_code
    if status == 404:
        return problem_response(Problem(code=NOT_FOUND, message="File Not Found"))
    code = INVALID_REQUEST if status < 500 else SERVER
    headers = {} if error.headers is None else dict(error.headers)
    return problem_response(Problem(code=code, message=error.detail), status, headers)


async def _on_unexpected(_request: Request, _error: Exception) -> Response:
    # Starlette raises the error again after this answer, so that the server logs its traceback.
    return problem_response(Problem(code=SERVER, message="Internal Server Error"))
