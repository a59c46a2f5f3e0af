"""The audit over HTTP, for keys with the scope `admin`."""

import datetime
import logging
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from functools import wraps
from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from schemas.errors import RequestError, SchemaError
from schemas.ids import generation_id_of, is_generation_id
from schemas.keys import ADMIN
from services.database.errors import DatabaseError
from services.edge.body import JsonObject, parse_object, read_body
from services.edge.errors import JSON_TYPE
from services.edge.scopes import require_scope
from services.logs import event
from services.streams.audit import lines
from services.streams.audit.filters import parse_day, parse_query
from services.streams.audit.verification import Head
from services.streams.audit.verifier import Extent, Step

if TYPE_CHECKING:
    from services.streams.audit.service import Audit

log = logging.getLogger(__name__)

MAX_BODY_BYTES = 64 * 1024
LINES_TYPE = "application/x-ndjson"
AWAY = "The archive's database is away"
_ANSWER_ID = re.compile(r"\A(chatcmpl-|resp_|msg_)")
_HEAD = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})/([0-9]{1,9}):([0-9a-f]{64})", re.ASCII)

Handler = Callable[["AuditRoutes", Request], Awaitable[Response]]
Door = Callable[[], Awaitable["Audit"]]
"""Opens the archive at its first use. Raises RequestError where there is none."""


def _admin(handler: Handler) -> Handler:
    """Only for operators; and a database that is away is a 503."""

    @wraps(handler)
    async def guarded(self: "AuditRoutes", request: Request) -> Response:
        require_scope(request, ADMIN)
        try:
            return await handler(self, request)
        except DatabaseError as error:
            raise RequestError.unavailable(AWAY) from error
        except SchemaError as error:
            raise RequestError.server("Its log is damaged; verify it") from error

    return guarded


class AuditRoutes:
    """The handlers. Raise RequestError, BusUnavailable, ClientDisconnect; the application maps them."""

    def __init__(self, door: Door) -> None:
        self._door = door

    def router(self) -> APIRouter:
        router, one = APIRouter(), "/v1/audit/generations/{generation_id}"
        router.add_route("/v1/audit/generations", self.list, methods=["GET"])
        router.add_route(one, self.show, methods=["GET"])
        router.add_route(one, self.erase, methods=["DELETE"])
        router.add_route(f"{one}/events", self.events, methods=["GET"])
        router.add_route("/v1/audit/callers/{key_id}", self.erase_caller, methods=["DELETE"])
        router.add_route("/v1/audit/verify", self.verify, methods=["POST"])
        return router

    @_admin
    async def list(self, request: Request) -> Response:
        """Archived generations, newest first, a page at a time."""
        query = parse_query(request.query_params)
        page = await (await self._door()).page(query)
        cursor = None if page.next is None else str(page.next)
        data = [lines.listed(facts) for facts in page.rows]
        return _json({"object": "list", "data": data, "has_more": bool(cursor), "next": cursor})

    @_admin
    async def show(self, request: Request) -> Response:
        """All facts of one."""
        facts = await (await self._door()).facts(_generation_id(request))
        return _json(lines.shown(facts))

    @_admin
    async def events(self, request: Request) -> Response:
        """Its log, a line per entry."""
        entries = await (await self._door()).entries(_generation_id(request))
        return StreamingResponse(_each(lines.event_lines(entries)), media_type=LINES_TYPE)

    @_admin
    async def verify(self, request: Request) -> Response:
        """Computes digests and chain anew; a line per break, as it is found, and the verdict."""
        extent = parse_extent(parse_object(await read_body(request, MAX_BODY_BYTES) or b"{}"))
        steps = (await self._door()).verify(extent)
        first = await anext(steps)  # a database that is away is still a 503
        return StreamingResponse(_verification(first, steps), media_type=LINES_TYPE)

    @_admin
    async def erase(self, request: Request) -> Response:
        """Erases what one generation said; what is left."""
        generation_id = _generation_id(request)
        facts = await (await self._door()).erase(generation_id)
        event(log, "erasure", generation=generation_id, by=request.state.caller)
        return _json(lines.shown(facts))

    @_admin
    async def erase_caller(self, request: Request) -> Response:
        """Erases what a caller's generations said."""
        caller = str(request.path_params["key_id"])
        n_erased = await (await self._door()).erase_caller(caller)
        event(log, "erasure", caller=caller, n=n_erased, by=request.state.caller)
        return _json({"object": "audit.erasure", "caller": caller, "n_erased": n_erased})


def parse_extent(body: JsonObject) -> Extent:
    """What to verify, from a request's body. Raises RequestError."""
    head, generation_id = _optional(body, "expect_head"), _optional(body, "id")
    first, last = _optional(body, "from"), _optional(body, "to")
    return Extent(
        first_day=_day(first, "from"),
        last_day=_day(last, "to"),
        generation_id=parse_id(generation_id) if generation_id else "",
        expected=parse_head(head) if head else None,
    )


def parse_head(text: str) -> Head:
    """A head as `verify` says it. Raises RequestError."""
    found = _HEAD.fullmatch(text)
    if found is None:
        raise RequestError.invalid("a head is <day>/<position>:<digest>, as verify says it")
    return Head(found[1], int(found[2]), found[3])


def parse_id(text: str) -> str:
    """The generation of that id, or of an answer with that id. Raises RequestError."""
    found = text if is_generation_id(text) else generation_id_of(_ANSWER_ID.sub("", text))
    if found is None:
        raise RequestError.not_found("There is no such generation")
    return found


def _optional(body: JsonObject, name: str) -> str:
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise RequestError.invalid(f"'{name}' must be a string", name)
    return value or ""


def _day(text: str, name: str) -> "datetime.date | None":
    return parse_day(text, name) if text else None


def _generation_id(request: Request) -> str:
    return parse_id(str(request.path_params["generation_id"]))


def _json(value: object) -> Response:
    return Response(lines.line(value), media_type=JSON_TYPE)


async def _verification(first: Step, steps: AsyncGenerator[Step]) -> AsyncIterator[bytes]:
    yield lines.step_line(first)
    async for step in steps:
        yield lines.step_line(step)


async def _each(found: Iterable[bytes]) -> AsyncIterator[bytes]:
    """One at a time, on the loop: making them in a pool of threads would cost more."""
    for piece in found:
        yield piece
