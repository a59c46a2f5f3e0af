"""OpenAI's Responses API: every response is a view of its log, so it outlives all processes."""

import re
from collections.abc import Mapping

import orjson
from starlette.requests import Request
from starlette.responses import Response

from schemas.errors import RequestError
from services.edge.access import access_of
from services.edge.body import JsonObject, read_json
from services.edge.disconnect import unless_gone
from services.edge.errors import JSON_TYPE
from services.edge.sse import SseResponse
from services.gateway.admission import Admission, Ask
from services.gateway.answer import Answers, answer_headers, headers_of
from services.gateway.asking import idempotency_of, priority_of
from services.gateway.cancellation import Canceller
from services.gateway.config import GatewaySettings
from services.gateway.counting import OPENAI_OBJECT, TokenCounter, counted_response
from services.gateway.dialects import responses
from services.gateway.generating import conversation_of
from services.gateway.stored_responses import StoredResponse, StoredResponses
from services.streams.hub import Hub
from services.streams.projections.responses_view import response_view
from services.streams.tape import Rendering, Tape, TapeReader

AS_RESPONSES = Rendering("responses", is_numbered=False)
DEFAULT_PAGE, MAX_PAGE = 20, 100
_NUMBER = re.compile(r"[0-9]{1,18}", re.ASCII)


class ResponsesRoutes:
    """The handlers. Raise RequestError, BusError, ClientDisconnect; the application maps them."""

    def __init__(
        self,
        admission: Admission,
        answers: Answers,
        stored: StoredResponses,
        counter: TokenCounter,
        ender: Canceller,
        settings: GatewaySettings,
    ) -> None:
        self._admission = admission
        self._answers = answers
        self._stored = stored
        self._counter = counter
        self._ender = ender
        self._hub: Hub = admission.hub
        self._settings = settings

    async def create(self, request: Request) -> Response:
        """Generate; in the background nobody has to wait for the answer, or to stay."""
        body = await self._read(request)
        caller = _caller(request)
        native = responses.translate(*await self._whole(caller, body))
        ask = Ask(
            dialect=responses.DIALECT,
            body=body,
            native=native,
            caller=caller,
            conversation=conversation_of(request),
            access=access_of(request),
            priority=priority_of(request.headers, body),
            idempotency=idempotency_of(
                request.headers, path=request.url.path, dialect=responses.DIALECT, body=body
            ),
        )
        tape = await self._admission.admit(ask)
        is_background = body.get("background") is True
        if is_background and not native.is_stream:
            with tape:
                return _json(response_view(tape.projection), answer_headers(request, tape))
        return await self._answers.respond(request, tape, outlives_client=is_background)

    async def retrieve(self, request: Request) -> Response:
        """The response as it is now, or with `stream=true` its events, those to come too."""
        found = await self._load(request)
        if request.query_params.get("stream") in ("true", "1"):
            return await self._replay(request, found)
        return _json(found.view())

    async def cancel(self, request: Request) -> Response:
        """Stop it; one that is over stays as it is."""
        found = await self._load(request)
        if found.state.end is None:
            await self._ender.cancel(found.generation_id, "stopped", state=found.state)
            found = await self._load(request)
        return _json(found.view())

    async def delete(self, request: Request) -> Response:
        """Stop it, and let nobody find it any more."""
        found = await self._load(request)
        if found.state.end is None:
            await self._ender.cancel(found.generation_id, "deleted", state=found.state)
        await self._stored.forget(found.generation_id)
        response_id = request.path_params["response_id"]
        return _json({"id": response_id, "object": "response", "deleted": True})

    async def list_input(self, request: Request) -> Response:
        """The items that went into it, those of earlier responses too; newest first by default."""
        found = await self._load(request)
        caller = _caller(request)
        history, own = await self._stored.items_of(caller, found.body, found.input())
        return _json(page_of([*history, *own], request.query_params))

    async def count(self, request: Request) -> Response:
        """How many tokens such a request would put into the context."""
        body = await self._read(request)
        whole = await self._whole(_caller(request), body)
        n_tokens = await self._counter.count(responses.translate_template(*whole))
        return counted_response(n_tokens, OPENAI_OBJECT)

    async def _replay(self, request: Request, found: StoredResponse) -> Response:
        starting_after = request.query_params.get("starting_after")
        after = None if starting_after is None else _number(starting_after, "starting_after")
        with await self._hub.open(found.generation_id, rendering=AS_RESPONSES) as tape:
            await unless_gone(request, tape.wait_started())
            return SseResponse(_reader(tape, after), headers=headers_of(tape))

    async def _load(self, request: Request) -> StoredResponse:
        return await self._stored.load(_caller(request), request.path_params["response_id"])

    async def _whole(self, caller: str, body: JsonObject) -> tuple[JsonObject, list[JsonObject]]:
        """The request with the items that it refers to, and those of what it continues."""
        own = responses.input_items(body)
        history, resolved = await self._stored.items_of(caller, body, own)
        return body | {"input": resolved}, history

    async def _read(self, request: Request) -> JsonObject:
        return await read_json(request, self._settings.max_body_bytes)


def page_of(items: list[JsonObject], query: Mapping[str, str]) -> JsonObject:
    """One page of a list. order: desc or asc; after: id of the last item seen; limit: 1 to 100."""
    limit = _number(query.get("limit") or str(DEFAULT_PAGE), "limit")
    if not 1 <= limit <= MAX_PAGE:
        raise RequestError.invalid(f"'limit' must be between 1 and {MAX_PAGE}", "limit")
    ordered = items if query.get("order") == "asc" else items[::-1]
    names = [item["id"] for item in ordered]
    after = query.get("after")
    if after and after not in names:
        raise RequestError.invalid("'after' is the id of none of the items", "after")
    rest = ordered[names.index(after) + 1 if after else 0 :]
    page = rest[:limit]
    return {
        "object": "list",
        "data": page,
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
        "has_more": len(rest) > limit,
    }


def _reader(tape: Tape, after: int | None) -> TapeReader:
    return tape.read() if after is None else tape.read_after_event(after)


def _number(text: str, name: str) -> int:
    if _NUMBER.fullmatch(text) is None:
        raise RequestError.invalid(f"'{name}' must be a number", name)
    return int(text)


def _caller(request: Request) -> str:
    return request.state.caller


def _json(value: object, headers: dict[str, str] | None = None) -> Response:
    return Response(orjson.dumps(value), headers=headers, media_type=JSON_TYPE)
