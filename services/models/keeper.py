"""Keeps the database: opens it, registers the model, writes the history behind, studies the file."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

from services.logs import event
from services.models.catalog import ModelSpec, Registered
from services.models.downloads import receipts
from services.models.files import FileIdentity, identify
from services.models.journal import Journal, Records, insist
from services.models.librarian import Librarian
from services.models.lifecycle import Verdict

log = logging.getLogger(__name__)

FLUSH_S = 1.0


class Keeper:
    """The database side of one model. Event-loop thread.

    Nobody waits for it: until the database is open, `registered` is a guess (first_seen_ms, no
    digest) and verdicts queue up. on_change: called when `registered` has changed. receipts_path: of
    the file in which downloads are noted, empty for none.
    """

    def __init__(
        self,
        *,
        spec: ModelSpec,
        open_records: Callable[[], Awaitable[Records]],
        first_seen_ms: int,
        on_change: Callable[[], None],
        receipts_path: str = "",
    ) -> None:
        self.registered = Registered(created_at_ms=first_seen_ms)
        self._spec, self._on_change = spec, on_change
        self._open_records, self._receipts_path = open_records, receipts_path
        self._journal, self._librarian = Journal(spec.key), Librarian()
        self._running: asyncio.Task[None] | None = None

    def note(self, verdict: Verdict, at_ms: int) -> None:
        """Have `verdict`, decided at that Unix time, written down; returns at once."""
        self._journal.add(verdict, at_ms)

    def start(self) -> None:
        """Begin in the background."""
        self._running = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Write what is still to be written (1 s at most) and close the database. Idempotent."""
        self._librarian.stop()
        if self._running is not None:
            await self._journal.flush(FLUSH_S)
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
            self._running = None

    async def _run(self) -> None:
        try:
            await self._keep()
        except Exception:
            log.exception("action=keeper_failed model=%s", self._spec.name)

    async def _keep(self) -> None:
        records = await insist(self._open_records)
        try:
            file = identify(self._spec.path)
            await self._register(records, file)
            await self._take_receipts(records)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._journal.run(records))
                tasks.create_task(self._study(records, file))
        finally:
            await records.close()

    async def _register(self, records: Records, file: FileIdentity) -> None:
        at_ms = self.registered.created_at_ms
        self._learn(await insist(lambda: records.register(self._spec, file, at_ms)))

    async def _take_receipts(self, records: Records) -> None:
        """Bring what the launcher has noted of downloads into the database, then drop the notes."""
        if not self._receipts_path:
            return
        path = Path(self._receipts_path)
        try:
            if found := receipts.pending(path):
                await insist(lambda: records.note_downloads(found))
                receipts.remove(path, found)
        except OSError as error:
            event(log, "receipts_unreadable", level=logging.WARNING, error=str(error))

    async def _study(self, records: Records, file: FileIdentity) -> None:
        if self.registered.digest or not file.path:  # a simulated model has no file
            return
        facts = await self._librarian.study(file)
        if facts and await insist(lambda: records.learn(self._spec.key, file, facts)):
            created_at_ms = self.registered.created_at_ms
            self._learn(Registered(created_at_ms=created_at_ms, digest=facts.digest))

    def _learn(self, registered: Registered) -> None:
        self.registered = registered
        self._on_change()
