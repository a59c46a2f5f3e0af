"""Looks through all logs on the broker: archives what no hint told of, and purges what is archived.

A log goes when it is in the archive and its hot window is over; its last entry stays, as its fence, until
the idempotency window is over too. What is due is read off the database at each look, never remembered.
When the store is tight, logs that the archive keeps go before their time, the oldest first.
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
from services.streams.archive.known import Archived

log = logging.getLogger(__name__)

TIGHT, ENOUGH = 0.75, 0.65
"""Part of the store that is used, from which on logs go early, and down to which. (Gateways admit nobody
from 0.85 on.)"""
TIGHT_BATCH = 50
HINT_MARGIN_MS = 5_000
"""What the hint of a log that has just ended has for itself."""


class StoredLogs(Protocol):
    """All logs on the broker. Methods raise BusUnavailable."""

    async def all(self) -> dict[str, int]:
        """Every generation with a log, and how many entries it has."""
        ...

    async def last_entries(self, generation_ids: Sequence[str]) -> dict[str, Entry]: ...

    async def purge(self, generation_id: str, *, keep_last: bool) -> None: ...

    async def fullness(self) -> float:
        """Which part of its limit the store has used, 0 where it has none."""
        ...


class Known(Protocol):
    """What is archived. Methods raise DatabaseUnavailable."""

    async def known(self, generation_ids: Sequence[str]) -> dict[str, Archived]:
        """Those of them that are archived."""
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
        known = await self._known.known(list(stored))
        await self._purge_erased([name for name, each in known.items() if each.is_erased], stored)
        for generation_id, archived in known.items():
            await self._purge_if_due(generation_id, archived.ended_at_ms, stored[generation_id])
        await self._make_room(known, stored)
        await self._archive_ended([each for each in stored if each not in known], stored)

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

    async def _purge_erased(self, generation_ids: Sequence[str], stored: dict[str, int]) -> None:
        """Whoever erased them may not have reached the broker. The end that the audit leaves in their
        place says nothing, and may stay until it is due."""
        for generation_id, entry in (await self._logs.last_entries(generation_ids)).items():
            if stored[generation_id] > 1 or not isinstance(entry.events[0], Terminal):
                await self._logs.purge(generation_id, keep_last=False)
                event(log, "erased_from_broker", generation=generation_id)

    async def _make_room(self, known: dict[str, Archived], stored: dict[str, int]) -> None:
        """Purge logs before their time while the store is tight; what was not to be kept stays."""
        if await self._logs.fullness() < TIGHT:
            return
        kept = [name for name, each in known.items() if each.is_kept and stored[name] > 1]
        kept.sort(key=lambda name: known[name].ended_at_ms)
        n_purged = 0
        while n_purged < len(kept) and await self._logs.fullness() >= ENOUGH:
            for name in kept[n_purged : n_purged + TIGHT_BATCH]:
                await self._purge_if_due(name, known[name].ended_at_ms, stored[name], 0.0)
            n_purged += TIGHT_BATCH
        event(log, "store_tight", level=logging.WARNING, n_purged=min(n_purged, len(kept)))

    async def _purge_if_due(
        self,
        generation_id: str,
        ended_at_ms: int,
        n_entries: int,
        hot_window_s: float | None = None,
    ) -> None:
        age_s = (self._now_ms() - ended_at_ms) / 1000
        if age_s < (self._settings.hot_window_s if hot_window_s is None else hot_window_s):
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
