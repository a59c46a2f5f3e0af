"""Looks through all logs on the broker: archives what no hint told of, and purges what is archived.

A log goes when it is in the archive and its hot window is over; its last entry stays, as its fence, until
the idempotency window is over too. What is due is read off the database at each look, never remembered.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Protocol

from schemas.events import Event, Terminal
from services.bus.errors import BusError
from services.bus.log import Entry
from services.database.errors import DatabaseError
from services.logs import event
from services.streams.archive.config import ArchiveSettings
from services.streams.archive.digests import day_of

log = logging.getLogger(__name__)

HINT_MARGIN_MS = 5_000
"""What the hint of a log that has just ended has for itself."""


class StoredLogs(Protocol):
    """All logs on the broker. Methods raise BusUnavailable."""

    async def all(self) -> dict[str, int]:
        """Every generation with a log, and how many entries it has."""
        ...

    async def last_entries(self, generation_ids: Sequence[str]) -> dict[str, Entry]: ...

    async def purge(self, generation_id: str, *, keep_last: bool) -> None: ...


class Known(Protocol):
    """What is archived. Methods raise DatabaseUnavailable."""

    async def ended_at(self, generation_ids: Sequence[str]) -> dict[str, int]:
        """Of those that are archived, when they ended, in Unix milliseconds."""
        ...

    async def drop_days_before(self, day: str, today: str) -> int: ...


class ArchiveSweep:
    """now_ms: Unix milliseconds. archive: copies logs by id; see Archiver."""

    def __init__(
        self,
        logs: StoredLogs,
        known: Known,
        archive: Callable[[Sequence[str]], Awaitable[int]],
        settings: ArchiveSettings,
        now_ms: Callable[[], int],
    ) -> None:
        self._logs = logs
        self._known = known
        self._archive = archive
        self._settings = settings
        self._now_ms = now_ms

    async def run(self) -> None:
        """Until cancelled. Several processes do not look at the same moment for long."""
        while True:
            await asyncio.sleep(self._settings.sweep_s * random.uniform(0.8, 1.2))
            try:
                await self.once()
                await self.drop_old()
            except (BusError, DatabaseError) as error:
                event(log, "archive_sweep_later", level=logging.DEBUG, error=str(error))
            except Exception:
                log.exception("action=archive_sweep_failed")

    async def once(self) -> None:
        """Look through all logs once. Raises BusError, DatabaseUnavailable."""
        stored = await self._logs.all()
        ended_at_ms = await self._known.ended_at(list(stored))
        for generation_id, at_ms in ended_at_ms.items():
            await self._purge_if_due(generation_id, at_ms, stored[generation_id])
        unknown = [each for each in stored if each not in ended_at_ms]
        await self._archive_ended(unknown, stored)

    async def drop_old(self) -> int:
        """Remove from the archive what is older than it shall keep; how many generations. Raises
        DatabaseUnavailable."""
        days = self._settings.retention_days
        if not days:
            return 0
        today = day_of(self._now_ms())
        first_kept = datetime.strptime(today, "%Y-%m-%d").replace(tzinfo=UTC) - timedelta(days=days)
        n_dropped = await self._known.drop_days_before(first_kept.strftime("%Y-%m-%d"), today)
        if n_dropped:
            event(log, "archive_dropped", n=n_dropped, before=first_kept.strftime("%Y-%m-%d"))
        return n_dropped

    async def _purge_if_due(self, generation_id: str, ended_at_ms: int, n_entries: int) -> None:
        age_s = (self._now_ms() - ended_at_ms) / 1000
        if age_s < self._settings.hot_window_s:
            return
        keeps_fence = age_s < self._settings.idempotency_s
        if not keeps_fence or n_entries > 1:
            await self._logs.purge(generation_id, keep_last=keeps_fence)

    async def _archive_ended(self, generation_ids: Sequence[str], stored: dict[str, int]) -> None:
        """Of logs that are not archived: those that have ended and got no hint, and remains of logs."""
        ended: list[str] = []
        for generation_id, entry in (await self._logs.last_entries(generation_ids)).items():
            at_ms = _ended_at_ms(entry.events)
            if at_ms is None or self._now_ms() - at_ms < HINT_MARGIN_MS:
                continue
            if stored[generation_id] == 1 and isinstance(entry.events[0], Terminal):
                # Refused before it was opened, or the fence of one that the archive has dropped.
                await self._purge_if_due(generation_id, at_ms, 1)
            else:
                ended.append(generation_id)
        if n_new := await self._archive(ended):
            event(log, "archive_caught_up", n=n_new)


def _ended_at_ms(events: tuple[Event, ...]) -> int | None:
    """When a log ended by its last entry; None for one that goes on."""
    return next((event.at_ms for event in events if isinstance(event, Terminal)), None)
