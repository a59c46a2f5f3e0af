"""Errors that cross a service boundary.

    LlamatapeError                base of all of ours; never raised itself
    ├── SchemaError               bytes that are not a message of ours (codec)
    └── RequestError              the caller's request cannot be served: code, status, message

`code` is stable and part of the contract, `message` is free text that says what to do next.
"""

from schemas.struct import Message

INVALID_REQUEST = "invalid_request_error"
AUTHENTICATION = "authentication_error"
PERMISSION = "permission_error"
NOT_FOUND = "not_found_error"
SERVER = "server_error"
NOT_SUPPORTED = "not_supported_error"
UNAVAILABLE = "unavailable_error"
EXCEED_CONTEXT_SIZE = "exceed_context_size_error"
BODY_TOO_LARGE = "body_too_large_error"
IDEMPOTENCY = "idempotency_error"
RATE_LIMIT = "rate_limit_error"

STATUS_OF_CODE = {
    INVALID_REQUEST: 400,
    AUTHENTICATION: 401,
    PERMISSION: 403,
    NOT_FOUND: 404,
    SERVER: 500,
    NOT_SUPPORTED: 501,
    UNAVAILABLE: 503,
    EXCEED_CONTEXT_SIZE: 400,
    BODY_TOO_LARGE: 413,
    IDEMPOTENCY: 422,
    RATE_LIMIT: 429,
}
"""The one table from error code to HTTP status (llama-server's names)."""


class Problem(Message, frozen=True, kw_only=True):
    """What went wrong, in the form that events and RPC replies carry.

    code: one of the names above. message: for people. n_prompt_tokens, n_ctx: tokens, only with
    EXCEED_CONTEXT_SIZE. retry_after_s: seconds, only with UNAVAILABLE and RATE_LIMIT. param: the
    property at fault.
    """

    code: str
    message: str
    param: str | None = None
    n_prompt_tokens: int | None = None
    n_ctx: int | None = None
    retry_after_s: int | None = None

    @property
    def status(self) -> int:
        return STATUS_OF_CODE.get(self.code, 500)


class LlamatapeError(Exception):
    """Base of all errors of ours."""


class SchemaError(LlamatapeError):
    """Bytes that are not a message of ours."""


class RequestError(LlamatapeError):
    """The caller's request cannot be served; `problem` says why in the client's terms."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem

    @classmethod
    def invalid(cls, message: str, param: str | None = None) -> "RequestError":
        return cls(Problem(code=INVALID_REQUEST, message=message, param=param))

    @classmethod
    def unavailable(cls, message: str, retry_after_s: int = 1) -> "RequestError":
        return cls(Problem(code=UNAVAILABLE, message=message, retry_after_s=retry_after_s))

    @classmethod
    def not_found(cls, message: str) -> "RequestError":
        return cls(Problem(code=NOT_FOUND, message=message))

    @classmethod
    def not_supported(cls, message: str) -> "RequestError":
        return cls(Problem(code=NOT_SUPPORTED, message=message))

    @classmethod
    def server(cls, message: str) -> "RequestError":
        return cls(Problem(code=SERVER, message=message))
