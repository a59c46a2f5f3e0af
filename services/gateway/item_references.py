"""Input items that stand for items of earlier responses: `{"type": "item_reference", "id": …}`.

Ids of our items tell which generation they are of, so a reference is resolved by reading that log.
Items that a client named itself are found where the request continues the response they came in.
"""

import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

from schemas.errors import NOT_FOUND, Problem, RequestError
from services.edge.body import JsonObject

REFERENCE = "item_reference"
MAX_LOGS = 1000
"""So many logs one request may have read for its references."""
_OURS = re.compile(r"(?:msg|rs|fc|in)_([0-9a-f]{32})(?:[0-9a-f]{2}|[0-9a-f]{4})", re.ASCII)


class Items(Protocol):
    """What of a stored response is needed here."""

    def items(self) -> list[JsonObject]:
        """Its input and output, each with an id."""
        ...


Load = Callable[[str], Awaitable[Items | None]]
"""A response of the caller's by its id; None for what it may not see."""


class References:
    """Resolves the references of one request. Methods raise RequestError (404), BusError."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._known: dict[str, JsonObject] = {}
        self._read: set[str] = set()

    async def resolved(self, items: Iterable[JsonObject]) -> list[JsonObject]:
        """The items themselves in place of references. Later calls may refer to them, too."""
        found = [await self._one(item) for item in items]
        self.know(found)
        return found

    def know(self, items: Iterable[JsonObject]) -> None:
        """Items that may be referred to from now on."""
        self._known.update({str(item["id"]): item for item in items if "id" in item})

    async def _one(self, item: JsonObject) -> JsonObject:
        if item.get("type") != REFERENCE:
            return item
        name = item.get("id")
        if not isinstance(name, str):
            raise RequestError.invalid("Field 'input': an item_reference needs an id", "input")
        if name not in self._known:
            await self._look_for(name)
        if name not in self._known:
            message = f"Item with id '{name}' not found; items of responses with store: false are not kept"
            raise RequestError(Problem(code=NOT_FOUND, message=message, param="input"))
        return self._known[name]

    async def _look_for(self, name: str) -> None:
        ours = _OURS.fullmatch(name)
        if ours is None or ours[1] in self._read:
            return
        if len(self._read) == MAX_LOGS:
            raise RequestError.invalid(
                f"Field 'input': references to more than {MAX_LOGS} responses", "input"
            )
        self._read.add(ours[1])
        response = await self._load(f"resp_{ours[1]}")
        items = [] if response is None else response.items()
        self.know(item for item in items if item.get("type") != REFERENCE)
