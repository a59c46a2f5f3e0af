"""Responses of earlier requests: read from their logs, whoever ran them and whenever that was."""

from dataclasses import dataclass
from typing import cast

import orjson
from msgspec import structs

from schemas import ids
from schemas.errors import INVALID_REQUEST, Problem, RequestError
from schemas.events import Requested
from schemas.generation import Generation
from services.gateway.dialects.fields import JsonObject
from services.gateway.dialects.responses import DIALECT, input_items
from services.gateway.item_references import References
from services.streams.errors import StreamGone
from services.streams.forgotten import Forgotten, may_show
from services.streams.logs import Logs
from services.streams.projections import Projection, projection_for
from services.streams.projections.responses_view import response_view

PREFIX = "resp_"
MAX_TURNS = 1000
"""So many responses may continue one another; each is a log to read."""


@dataclass(frozen=True, kw_only=True)
class StoredResponse:
    """One response as far as its log was read. state: for those who end the log."""

    projection: Projection
    state: Generation

    @property
    def generation_id(self) -> str:
        return self.projection.requested.generation_id

    @property
    def body(self) -> JsonObject:
        """The client's request."""
        return cast(JsonObject, orjson.loads(self.projection.requested.request))

    def view(self) -> JsonObject:
        """The response object."""
        return response_view(self.projection)

    def input(self) -> list[JsonObject]:
        """Its own input items, each with an id."""
        digits = self.generation_id.replace("-", "")
        items = input_items(self.body)
        return [{"id": f"in_{digits}{n:04x}"} | item for n, item in enumerate(items)]

    def output(self) -> list[JsonObject]:
        """Its output items."""
        return cast("list[JsonObject]", self.view()["output"])

    def items(self) -> list[JsonObject]:
        """All of them; the output once it is whole."""
        return [*self.input(), *(self.output() if self.state.end is not None else [])]


class StoredResponses:
    """Looks responses up. Methods raise RequestError (404 for what the caller may not see), BusError."""

    def __init__(self, logs: Logs, forgotten: Forgotten) -> None:
        self._logs = logs
        self._forgotten = forgotten

    async def load(self, caller: str, response_id: str) -> StoredResponse:
        """A response of that caller's."""
        found = await self._find(caller, response_id)
        if found is None:
            raise RequestError.not_found(f"Response with id '{response_id}' not found.")
        return found

    async def history(self, caller: str, body: JsonObject) -> list[JsonObject]:
        """The items of all responses that a request continues, oldest first.

        As in OpenAI's service their instructions are not among them.
        """
        return (await self._history(caller, body))[0]

    async def items_of(
        self, caller: str, body: JsonObject, own: list[JsonObject]
    ) -> tuple[list[JsonObject], list[JsonObject]]:
        """The history of a request, and its own items, with those that they refer to in their place."""
        history, references = await self._history(caller, body)
        return history, await references.resolved(own)

    async def _history(self, caller: str, body: JsonObject) -> tuple[list[JsonObject], References]:
        references = References(lambda response_id: self._find(caller, response_id))
        items: list[JsonObject] = []
        for turn in reversed(await self._turns(caller, body)):
            own = await references.resolved(turn.input())
            references.know(output := turn.output())
            items += [*own, *output]
        return items, references

    async def _turns(self, caller: str, body: JsonObject) -> list[StoredResponse]:
        """The responses that a request continues, newest first."""
        turns: list[StoredResponse] = []
        previous = body.get("previous_response_id")
        while isinstance(previous, str) and previous:
            if len(turns) == MAX_TURNS:
                raise _bad_previous(f"More than {MAX_TURNS} responses continue one another")
            turns.append(await self._turn(caller, previous))
            previous = turns[-1].body.get("previous_response_id")
        return turns

    async def forget(self, generation_id: str) -> None:
        """From now on nobody finds it; its log stays."""
        await self._forgotten.mark(generation_id)

    async def _turn(self, caller: str, response_id: str) -> StoredResponse:
        turn = await self._find(caller, response_id)
        if turn is None:
            raise _bad_previous(f"Previous response with id '{response_id}' not found.")
        if turn.state.end is None:
            raise _bad_previous(f"Previous response with id '{response_id}' is still in progress.")
        return turn

    async def _find(self, caller: str, response_id: str) -> StoredResponse | None:
        generation_id = ids.generation_id_of(response_id, PREFIX)
        if generation_id is None:
            return None
        try:
            found = await self._read(generation_id)
        except StreamGone as gone:
            if gone.caller == caller:
                raise RequestError.not_found(str(gone)) from gone
            return None
        if found is None or not _is_response(found.projection.requested, caller):
            return None
        return None if await self._forgotten.has(generation_id) else found

    async def _read(self, generation_id: str) -> StoredResponse | None:
        entries = await self._logs.read(generation_id)
        events = [event for entry in entries for event in entry.events]
        if not events or not isinstance(events[0], Requested):
            return None
        projection = projection_for(events[0], is_streamed=False)
        for event in events:
            projection.apply(event)
        state = projection.generation
        return StoredResponse(projection=projection, state=_at(state, entries[-1].seq))


def _at(state: Generation, seq: int) -> Generation:
    return structs.replace(state, last_seq=seq)


def _is_response(requested: Requested, caller: str) -> bool:
    return requested.dialect == DIALECT and may_show(requested, caller)


def _bad_previous(message: str) -> RequestError:
    return RequestError(
        Problem(code=INVALID_REQUEST, message=message, param="previous_response_id")
    )
