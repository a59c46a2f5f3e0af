"""Builds the archive of one process: the only place here that joins it to bus and database."""

import asyncio
import contextlib
import importlib
import logging
import time
from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING

from schemas import codec, subjects
from schemas.lifecycle import ModelStatus
from schemas.rpc import ArchiveQuestion
from services.bus.connection import Bus, unsubscribe
from services.bus.ended import HintQueue
from services.bus.kv import Bucket
from services.bus.log import Entry, read_log
from services.bus.rpc import serve
from services.bus.store import fullness
from services.bus.stored_logs import last_entries, purge_log, stored_logs
from services.database.errors import DatabaseError
from services.logs import event
from services.streams.archive.archiver import Archiver
from services.streams.archive.config import ArchiveSettings
from services.streams.archive.serving import ArchiveDesk
from services.streams.archive.sweep import ArchiveSweep
from services.streams.archive.writing import RecordWriter, when_there

if TYPE_CHECKING:
    from services.streams.archive.store import ArchiveStore

log = logging.getLogger(__name__)

DIGEST_S = 1.0
NO_ARCHIVE = "logs stay on the broker for ever; give --database-url to archive them"


@contextlib.asynccontextmanager
async def archiving(bus: Bus, settings: ArchiveSettings) -> AsyncGenerator[None]:
    """While inside, ended logs are archived and purged, and readers of any process find them.

    Nobody waits for the database. Without one, this is said and nothing is done.
    """
    if not settings.database_url:
        event(log, "no_archive", level=logging.WARNING, hint=NO_ARCHIVE)
        yield
        return
    desk = ArchiveDesk(bus.max_message_bytes)
    subject = subjects.ARCHIVE_RPC
    served = await serve(bus, subject, ArchiveQuestion, desk.answer, queue="archive")
    task = asyncio.create_task(_run(bus, settings, desk), name="archive")
    try:
        yield
    finally:
        await unsubscribe(served)
        task.cancel()
        await asyncio.wait([task])


async def _run(bus: Bus, settings: ArchiveSettings, desk: ArchiveDesk) -> None:
    try:
        store = await when_there(lambda: _open(settings), desk.give_up)
    except DatabaseError as error:
        event(log, "archive_failed", level=logging.ERROR, error=str(error))
        return
    desk.open(store)
    event(log, "archive_open")
    try:
        await _archive(bus, settings, store)
    finally:
        await store.close()


async def _archive(bus: Bus, settings: ArchiveSettings, store: "ArchiveStore") -> None:
    writer = RecordWriter(store, _now_ms)
    archiver = Archiver(writer, lambda each: read_log(bus, each), _Digests(bus).of, _now_ms)
    sweep = ArchiveSweep(_BusLogs(bus), store, archiver.archive, settings, _now_ms)
    hints = HintQueue(bus)
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(archiver.run(hints))
            group.create_task(sweep.run())
    finally:
        await hints.stop()


async def _open(settings: ArchiveSettings) -> "ArchiveStore":
    # SQLAlchemy takes as long to import as all the rest of this process: not on the serving thread.
    await asyncio.to_thread(importlib.import_module, "services.streams.archive.store")
    from services.streams.archive.store import open_archive

    return await open_archive(settings.database_url, is_durable=settings.is_durable)


class _BusLogs:
    """All logs on the broker."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def all(self) -> dict[str, int]:
        return await stored_logs(self._bus)

    async def last_entries(self, generation_ids: Sequence[str]) -> dict[str, Entry]:
        return await last_entries(self._bus, generation_ids)

    async def purge(self, generation_id: str, *, keep_last: bool) -> None:
        await purge_log(self._bus, generation_id, keep_last=keep_last)

    async def fullness(self) -> float:
        return await fullness(self._bus)


class _Digests:
    """What the models service says of models' files; it is asked again after DIGEST_S."""

    def __init__(self, bus: Bus) -> None:
        self._bucket = Bucket(bus, subjects.MODELS_BUCKET)
        self._known: dict[str, tuple[float, str]] = {}

    async def of(self, model_key: str) -> str:
        asked_at, digest = self._known.get(model_key, (float("-inf"), ""))
        if time.monotonic() - asked_at > DIGEST_S:
            stored = await self._bucket.get(model_key) if model_key else None
            digest = "" if stored is None else codec.decode(stored.value, ModelStatus).digest
            self._known[model_key] = time.monotonic(), digest
        return digest


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
