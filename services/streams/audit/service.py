"""What the audit does, for routes and for the command line: the archive's tables and, where there is a
broker, the logs on it."""

import time
from collections.abc import AsyncGenerator
from typing import Protocol

from schemas.errors import RequestError
from schemas.events import decode_entry
from services.bus.log import Entry
from services.streams.archive.summary import CODEC, FULL, unpack
from services.streams.audit.erasing import Erased, erase
from services.streams.audit.filters import Cursor, PageQuery
from services.streams.audit.store import AuditStore
from services.streams.audit.verification import Columns
from services.streams.audit.verifier import Extent, Step, Verifier

BATCH = 100
"""Generations that one transaction erases."""
NOT_ARCHIVED = "There is no such generation in the archive (a running one comes in when it ends)"
NOT_YET = "The generation is not archived yet"
RETRY_S = 5


class Hot(Protocol):
    """The logs on the broker. Methods raise BusUnavailable."""

    async def erase(self, erased: Erased) -> None: ...

    async def read(self, generation_id: str) -> list[Entry]:
        """Empty where there is no such log."""
        ...


class Page:
    """Facts of some generations. next: cursor of the next page, None at the end."""

    def __init__(self, rows: list[Columns], limit: int) -> None:
        self.rows = rows[:limit]
        has_more = len(rows) > limit
        self.next = _cursor(self.rows[-1]) if has_more else None


class Audit:
    """hot: None where the broker is not known. Event-loop thread; methods raise DatabaseUnavailable
    and RequestError, and BusUnavailable where they look at the broker."""

    def __init__(self, store: AuditStore, hot: Hot | None) -> None:
        self._store = store
        self._hot = hot

    async def page(self, query: PageQuery) -> Page:
        """Facts of generations, newest first."""
        one_more = PageQuery(wanted=query.wanted, limit=query.limit + 1, after=query.after)
        return Page(await self._store.page(one_more), query.limit)

    async def facts(self, generation_id: str) -> Columns:
        """Of one archived generation."""
        found = await self._store.facts(generation_id)
        if found is None:
            raise RequestError.not_found(NOT_ARCHIVED)
        return found

    async def entries(self, generation_id: str) -> list[Entry]:
        """Its log: from the archive or, while it is not archived, from the broker."""
        facts = await self._store.facts(generation_id)
        if facts is None:
            return await self._hot_entries(generation_id)
        if facts["erased_at_ms"] is not None:
            raise RequestError.not_found("What this generation said was erased")
        packed = (await self._store.packed([generation_id])).get(generation_id)
        if packed is None:
            raise RequestError.not_found(f"Its log is not kept (content: {facts['content']})")
        if packed.codec != CODEC:
            raise RequestError.server(f"Its log was archived as {packed.codec}, by a newer version")
        return [Entry(seq, -1, decode_entry(data), data) for seq, data in unpack(packed.data)]

    async def _hot_entries(self, generation_id: str) -> list[Entry]:
        entries = [] if self._hot is None else await self._hot.read(generation_id)
        content = getattr(entries[0].events[0], "content", FULL) if entries else FULL
        if not entries:
            raise RequestError.not_found(NOT_ARCHIVED)
        if content != FULL:
            raise RequestError.not_found(f"Its log is not kept (content: {content})")
        return entries

    def verify(self, extent: Extent) -> AsyncGenerator[Step]:
        """See Verifier.run."""
        return Verifier(self._store, extent).run()

    async def erase(self, generation_id: str) -> Columns:
        """Erase one generation; what is left of its facts. Idempotent."""
        facts = await self._store.facts(generation_id)
        if facts is None:
            if self._hot is not None and await self._hot.read(generation_id):
                raise RequestError.unavailable(NOT_YET, RETRY_S)
            raise RequestError.not_found(NOT_ARCHIVED)
        erased = await erase(self._store.engine, [generation_id], _now_ms())
        await self._erase_hot(erased or [_again(facts)])
        return await self.facts(generation_id)

    async def erase_caller(self, caller: str) -> int:
        """Erase all that this caller asked and that is archived by now; how many generations."""
        n_erased = 0
        while ids := await self._store.ids_of_caller(caller, BATCH):
            erased = await erase(self._store.engine, ids, _now_ms())
            n_erased += len(erased)
            await self._erase_hot(erased)
        return n_erased

    async def _erase_hot(self, erased: list[Erased]) -> None:
        for each in erased if self._hot is not None else ():
            assert self._hot is not None
            await self._hot.erase(each)


def _again(facts: Columns) -> Erased:
    """One that was erased before, when the broker may have been away."""
    return Erased(str(facts["generation_id"]), str(facts["caller"]), None)


def _cursor(facts: Columns) -> Cursor:
    created_at_ms = facts["created_at_ms"]
    assert isinstance(created_at_ms, int)
    return Cursor(created_at_ms, str(facts["generation_id"]))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
