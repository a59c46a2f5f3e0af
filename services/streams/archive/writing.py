"""Writing records, however long the database stays away; one that it alone refuses is put aside."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from services.database.errors import DatabaseError, SchemaTooNew
from services.logs import event
from services.streams.archive.digests import day_of
from services.streams.archive.summary import Record

log = logging.getLogger(__name__)

T = TypeVar("T")
FIRST_RETRY_S, LAST_RETRY_S = 0.5, 30.0
REFUSED_MS = 3_600_000
"""What was refused is tried again after this time."""


class Records(Protocol):
    """The part of services.streams.archive.store.ArchiveStore that is needed here. Raises
    DatabaseError."""

    async def add(self, records: Sequence[Record], today: str) -> int: ...


class RecordWriter:
    """n_archived: generations since the start. now_ms: Unix milliseconds."""

    def __init__(
        self, records: Records, now_ms: Callable[[], int], *, first_retry_s: float = FIRST_RETRY_S
    ) -> None:
        self._records = records
        self._now_ms = now_ms
        self._first_retry_s = first_retry_s
        self._refused: dict[str, int] = {}
        self.n_archived = 0

    def is_refused(self, generation_id: str) -> bool:
        """Whether it was put aside, and not long ago."""
        at_ms = self._refused.get(generation_id)
        if at_ms is not None and self._now_ms() - at_ms >= REFUSED_MS:
            del self._refused[generation_id]
        return generation_id in self._refused

    def refuse(self, generation_id: str, error: Exception) -> None:
        """Put it aside, and say so: its log stays where it is."""
        self._refused[generation_id] = self._now_ms()
        text = str(error)
        event(log, "archive_refused", level=logging.ERROR, generation=generation_id, error=text)

    async def write(self, records: Sequence[Record]) -> int:
        """Add them; how many were not there. Waits for a database that is away, with one line in the
        log when that begins and one when it ends."""
        n_before, left, wait_s = self.n_archived, list(records), self._first_retry_s
        while left:
            try:
                await self._add(left)
                left = []
            except DatabaseError as error:
                if wait_s == self._first_retry_s:
                    event(log, "archive_waits", level=logging.WARNING, error=str(error))
                left = await self._sift(left)
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, LAST_RETRY_S)
        if wait_s > self._first_retry_s:
            event(log, "archive_goes_on", n=len(records))
        return self.n_archived - n_before

    async def _add(self, records: Sequence[Record]) -> None:
        self.n_archived += await self._records.add(records, day_of(self._now_ms()))

    async def _sift(self, records: Sequence[Record]) -> list[Record]:
        """The database refused them together: find the one that it refuses by itself, while it
        answers. What is still to be added."""
        for index, record in enumerate(records):
            try:
                await self._add([record])
            except DatabaseError as error:
                if not await self._answers():
                    return list(records[index:])
                self.refuse(record.generation_id, error)
        return []

    async def _answers(self) -> bool:
        try:
            await self._add([])
        except DatabaseError:
            return False
        return True


async def when_there(
    open_: Callable[[], Awaitable[T]], on_failure: Callable[[], None] = lambda: None
) -> T:
    """What `open_` gives, tried again as long as the database is away. Raises SchemaTooNew."""
    wait_s = FIRST_RETRY_S
    while True:
        try:
            return await open_()
        except SchemaTooNew:
            on_failure()
            raise
        except DatabaseError as error:
            on_failure()
            if wait_s == FIRST_RETRY_S:
                event(log, "archive_waits", level=logging.WARNING, error=str(error))
        await asyncio.sleep(wait_s)
        wait_s = min(2 * wait_s, LAST_RETRY_S)
