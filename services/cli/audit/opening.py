"""The archive that the command line means: its database and, where one is there, its broker."""

import argparse
import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import TYPE_CHECKING

from services.bus.config import BusSettings
from services.bus.connection import connect
from services.bus.errors import BusError
from services.cli import settings
from services.cli.audit import options
from services.cli.broker import address_of
from services.cli.errors import UsageError

if TYPE_CHECKING:
    from services.streams.audit.service import Audit, Hot
    from services.streams.audit.store import AuditStore

SQLITE = "sqlite+aiosqlite:///"
BROKER_TIMEOUT_S = 3.0


@contextlib.asynccontextmanager
async def opened(given: argparse.Namespace) -> AsyncGenerator["Audit"]:
    """The archive's database alone. Raises UsageError where there is none, DatabaseUnavailable."""
    from services.streams.audit.service import Audit

    async with _store(given) as store:
        yield Audit(store, None)


@contextlib.asynccontextmanager
async def opened_with_broker(given: argparse.Namespace) -> AsyncGenerator[tuple["Audit", bool]]:
    """The same, and the broker; False if that is not there. Raises the same."""
    from services.streams.audit.service import Audit

    async with _store(given) as store, _broker(given) as hot:
        yield Audit(store, hot), hot is not None


@contextlib.asynccontextmanager
async def _store(given: argparse.Namespace) -> AsyncGenerator["AuditStore"]:
    from services.streams.audit.bootstrap import opened as opened_store

    url = options.database_url(given)
    _check(url)
    async with opened_store(url) as store:
        yield store


def _check(url: str) -> None:
    """SQLite would make an empty file of a name that was mistyped."""
    path = url.removeprefix(SQLITE)
    if path != url and not Path(path).exists():
        raise UsageError(f"there is no database {path}; name a --data-dir or a --database-url")


@contextlib.asynccontextmanager
async def _broker(given: argparse.Namespace) -> AsyncGenerator["Hot | None"]:
    from services.bus.log import LogWriter
    from services.streams.audit.bootstrap import hot_logs
    from services.streams.bootstrap import create_conversations

    where = _broker_settings(given)
    if where is None:
        yield None
        return
    try:
        bus = await connect(where, name="audit", timeout_s=BROKER_TIMEOUT_S)
    except BusError:
        yield None
        return
    try:
        yield hot_logs(bus, LogWriter(bus), create_conversations(bus))
    finally:
        await bus.close()


def _broker_settings(given: argparse.Namespace) -> BusSettings | None:
    """The one that is named, else the one that `serve` runs in the data directory."""
    if given.values["broker_url"]:
        return settings.bus_settings(given.values)
    found = address_of(settings.data_dir(given.values) / "broker")
    return None if found is None else BusSettings(url=found[0], token=found[1])
