"""How a client gets its answer: read from the log, as everybody else's reader does."""

from typing import Protocol

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from schemas.errors import Problem
from schemas.events import Requested
from services.edge.access import access_of
from services.edge.disconnect import unless_gone
from services.edge.errors import JSON_TYPE, problem_response
from services.edge.sse import SseResponse
from services.gateway.cancellation import Canceller
from services.streams.tape import Tape


class Refuse(Protocol):
    """An error as a response; headers go along."""

    def __call__(
        self, problem: Problem, /, *, headers: dict[str, str] | None = None
    ) -> Response: ...


GENERATION_HEADER = "x-generation-id"
CLIENT_GONE = "client_gone"


class Answers:
    """Turns a tape into a response; cancels what nobody can read any more."""

    def __init__(self, ender: Canceller) -> None:
        self._ender = ender

    async def respond(
        self,
        request: Request,
        tape: Tape,
        refuse: Refuse = problem_response,
        *,
        outlives_client: bool = False,
    ) -> Response:
        """The response for an admitted request. Takes over the hold on `tape`. refuse: what an error
        looks like. outlives_client: the generation goes on when the client hangs up.

        Nothing is sent before a slot is taken, so what fails until then has a status of its own.
        Raises ClientDisconnect, after the generation was cancelled where nobody may come back for it.
        """
        with tape:
            if tape.projection.requested.params.output.stream:
                return await self._stream(request, tape, refuse, outlives_client)
            return await self._whole(request, tape, refuse)

    async def _whole(self, request: Request, tape: Tape, refuse: Refuse) -> Response:
        try:
            await unless_gone(request, tape.wait_done())
        except ClientDisconnect:
            if tape.projection.requested.idempotency_key is None:
                await self._cancel(tape)
            raise
        problem = tape.projection.problem
        if problem is not None:
            return refuse(problem, headers=answer_headers(request, tape))
        status, body = tape.result()
        return Response(body, status, answer_headers(request, tape), media_type=JSON_TYPE)

    async def _stream(
        self, request: Request, tape: Tape, refuse: Refuse, outlives_client: bool
    ) -> Response:
        is_resumable = outlives_client or may_come_back(tape.projection.requested)
        try:
            await unless_gone(request, tape.wait_started())
        except ClientDisconnect:
            if not is_resumable:
                await self._cancel(tape)
            raise
        problem = tape.projection.failed_before_start
        if problem is not None:
            return refuse(problem, headers=answer_headers(request, tape))
        on_gone = None if is_resumable else lambda: self._cancel(tape)
        headers = answer_headers(request, tape)
        return SseResponse(tape.read(), on_disconnect=on_gone, headers=headers)

    async def _cancel(self, tape: Tape) -> None:
        await self._ender.cancel(tape.generation_id, CLIENT_GONE, state=tape.generation)


def may_come_back(requested: Requested) -> bool:
    """Whether its client can ask for the same stream again."""
    return requested.conversation is not None or requested.idempotency_key is not None


def headers_of(tape: Tape) -> dict[str, str]:
    return {GENERATION_HEADER: tape.generation_id}


def answer_headers(request: Request, tape: Tape) -> dict[str, str]:
    """The same, and how the caller's limits stand."""
    return headers_of(tape) | access_of(request).headers
