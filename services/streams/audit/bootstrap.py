"""Builds the audit: the only place here that joins it to database and bus."""

import asyncio
import contextlib
import importlib
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from fastapi import APIRouter

from schemas.errors import RequestError
from services.bus.connection import Bus
from services.bus.log import Entry, LogWriter, read_log
from services.database.errors import DatabaseUnavailable
from services.streams.audit.routes import AuditRoutes
from services.streams.conversations import Conversations

if TYPE_CHECKING:
    from services.streams.audit.erasing import Erased
    from services.streams.audit.hot import HotLogs
    from services.streams.audit.service import Audit, Hot
    from services.streams.audit.store import AuditStore

FIRST_REVISION = "0003"
NO_TABLES = "the database has no archive yet: start a server on it, or run `llamatape migrate`"
NO_ARCHIVE = (
    "This process knows no archive: ask `llamatape streams`, or give this one --database-url"
)


class AuditDoor:
    """Connects at the first question, with connections of its own: archiving never waits for one."""

    def __init__(self, bus: Bus, writer: LogWriter, conversations: Conversations, url: str) -> None:
        self._parts = bus, writer, conversations
        self._url = url
        self._audit: Audit | None = None
        self._opening = asyncio.Lock()
        self._closing = contextlib.AsyncExitStack()

    async def __call__(self) -> "Audit":
        """Raises RequestError where there is no archive, DatabaseUnavailable."""
        if not self._url:
            raise RequestError.not_supported(NO_ARCHIVE)
        async with self._opening:
            if self._audit is None:
                self._audit = await self._open()
        return self._audit

    async def close(self) -> None:
        """Give the connections back."""
        await self._closing.aclose()

    async def _open(self) -> "Audit":
        # SQLAlchemy takes as long to import as all the rest of this process: not on the serving thread.
        await asyncio.to_thread(importlib.import_module, "services.streams.audit.service")
        from services.streams.audit.service import Audit

        store = await self._closing.enter_async_context(opened(self._url))
        return Audit(store, hot_logs(*self._parts))


class _Hot:
    """The logs on the broker."""

    def __init__(self, bus: Bus, logs: "HotLogs") -> None:
        self._bus = bus
        self._logs = logs

    async def erase(self, erased: "Erased") -> None:
        await self._logs.erase(erased)

    async def read(self, generation_id: str) -> list[Entry]:
        return await read_log(self._bus, generation_id)


def hot_logs(bus: Bus, writer: LogWriter, conversations: Conversations) -> "Hot":
    """What the broker has of archived generations."""
    from services.streams.audit.hot import HotLogs

    return _Hot(bus, HotLogs(bus, writer, conversations))


@contextlib.asynccontextmanager
async def opened(url: str) -> AsyncGenerator["AuditStore"]:
    """The archive's tables in the database at `url`, as they are: nothing is migrated. Raises
    DatabaseUnavailable, also where there are no such tables."""
    from services.database.engine import create_engine
    from services.database.schema import current_revision
    from services.streams.audit.store import AuditStore

    engine = create_engine(url, is_durable=True)
    try:
        if await current_revision(engine) < FIRST_REVISION:
            raise DatabaseUnavailable(NO_TABLES)
        yield AuditStore(engine)
    finally:
        await engine.dispose()


@contextlib.asynccontextmanager
async def auditing(
    bus: Bus, writer: LogWriter, conversations: Conversations, url: str
) -> AsyncGenerator[APIRouter]:
    """The audit's routes, for as long as the context is open. url: of the archive's database, empty
    for none."""
    door = AuditDoor(bus, writer, conversations, url)
    try:
        yield AuditRoutes(door).router()
    finally:
        await door.close()
