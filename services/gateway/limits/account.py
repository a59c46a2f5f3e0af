"""What one key has used, shared with all other gateways: one entry of a bucket, swapped by revision.

Changes that come while one swap is under way go together into the next: however busy a key is, a
gateway has one swap of it in flight, and pays less per request the busier it is.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar, cast

from schemas import codec
from schemas.errors import SchemaError
from schemas.keys import KeyUsage
from services.bus.errors import BusUnavailable, KeyConflict
from services.bus.keys import Keys

MAX_TRIES = 100
"""Somebody wins each round, so that many in a row are lost only in a crowd of gateways."""

T = TypeVar("T")
Change = Callable[[KeyUsage], tuple[KeyUsage, T]]
"""What becomes of a usage, and what to tell whoever asked. Pure, and called again after a lost swap."""


class Account:
    """One key's entry. Event-loop thread only.

    usage: as last seen, which other gateways may have changed since.
    """

    def __init__(self, keys: Keys, key_id: str) -> None:
        self._keys, self._key_id = keys, key_id
        self._revision: int | None = None
        self._waiting: list[tuple[Change[object], asyncio.Future[object]]] = []
        self._working: asyncio.Task[None] | None = None
        self.usage = KeyUsage()

    @property
    def is_idle(self) -> bool:
        return self._working is None

    async def look(self) -> KeyUsage:
        """The usage as it is now. Raises BusUnavailable."""
        await self._refresh()
        return self.usage

    async def apply(self, change: Change[T]) -> T:
        """Make a change; what it tells. What changes nothing costs a look, if it was decided on a
        usage that may be stale. Raises BusUnavailable: it may then be made or not."""
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._waiting.append((cast("Change[object]", change), future))
        if self._working is None:
            self._working = asyncio.create_task(self._work())
        return cast(T, await future)

    async def _work(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting, []
                await self._serve(batch)
        finally:
            self._working = None

    async def _serve(self, batch: list[tuple[Change[object], "asyncio.Future[object]"]]) -> None:
        futures = [future for _, future in batch]
        try:
            told = await self._swap([change for change, _ in batch])
        except Exception as error:
            self._revision = None
            for future in futures:
                if not future.done():
                    future.set_exception(error)
            return
        for future, each in zip(futures, told, strict=True):
            if not future.done():  # who asked may be gone
                future.set_result(each)

    async def _swap(self, changes: list[Change[object]]) -> list[object]:
        for _ in range(MAX_TRIES):
            is_fresh = self._revision is None
            if is_fresh:
                await self._refresh()
            after, told = _fold(self.usage, changes)
            if after == self.usage and is_fresh:
                return told
            if after == self.usage:
                self._revision = None  # look first: others may have given something back
            elif await self._is_stored(after):
                return told
        raise BusUnavailable(f"too many gateways change what key {self._key_id} has used")

    async def _is_stored(self, usage: KeyUsage) -> bool:
        assert self._revision is not None
        try:
            data = codec.encode(usage)
            self._revision = await self._keys.update(self._key_id, data, self._revision)
        except KeyConflict:
            self._revision = None
            return False
        self.usage = usage
        return True

    async def _refresh(self) -> None:
        found = await self._keys.get(self._key_id)
        usage = KeyUsage() if found is None else _read(found.value)
        self.usage, self._revision = usage, 0 if found is None else found.revision


def _fold(usage: KeyUsage, changes: list[Change[object]]) -> tuple[KeyUsage, list[object]]:
    told: list[object] = []
    for change in changes:
        usage, each = change(usage)
        told.append(each)
    return usage, told


def _read(data: bytes) -> KeyUsage:
    try:
        return codec.decode(data, KeyUsage)
    except SchemaError as error:
        raise BusUnavailable(f"unreadable usage of a key: {error}") from error
