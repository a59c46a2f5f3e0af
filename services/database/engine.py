"""One database: SQLite in a file, or PostgreSQL. Transactions that may be repeated, errors of ours."""

import asyncio
import contextlib
import sqlite3
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import aiosqlite
from sqlalchemy import event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

from services.database.errors import DatabaseUnavailable

BUSY_TIMEOUT_MS = 10_000
"""How long a writer waits for another process that writes into the same SQLite file."""

POSTGRES: dict[str, Any] = {
    "server_settings": {"idle_in_transaction_session_timeout": "30000"},
}
"""A process that is stopped in the middle of a transaction must not hold its locks for ever."""
READS_ONLY = "llamatape_reads_only"
WAL_TRIES = 200
WAL_RETRY_S = 0.02


def create_engine(url: str, *, is_durable: bool = False) -> AsyncEngine:
    """An engine that connects at first use. Raises DatabaseUnavailable for a URL nobody understands.

    is_durable: SQLite waits for the disk at each commit; without, the last ones before a power cut may
    be lost. (PostgreSQL waits in any case, unless its `synchronous_commit` says otherwise.)
    """
    try:
        parsed = make_url(url)
        is_sqlite = parsed.get_backend_name() == "sqlite"
        arguments = POSTGRES if parsed.get_driver_name() == "asyncpg" else {}
        engine = create_async_engine(parsed, pool_pre_ping=not is_sqlite, connect_args=arguments)
        if is_sqlite:
            _prepare_sqlite(engine, parsed.database, is_durable=is_durable)
    except (ArgumentError, NoSuchModuleError, ImportError, OSError) as error:
        raise DatabaseUnavailable(f"cannot use the database: {error}") from error
    return engine


@contextlib.asynccontextmanager
async def transaction(engine: AsyncEngine) -> AsyncGenerator[AsyncSession]:
    """A session whose work is committed at the end, or undone. Raises DatabaseUnavailable."""
    try:
        async with AsyncSession(engine, expire_on_commit=False) as session, session.begin():
            yield session
    except (SQLAlchemyError, OSError, *driver_errors()) as error:
        raise DatabaseUnavailable(f"the database refused: {error}") from error


@contextlib.asynccontextmanager
async def reading(engine: AsyncEngine) -> AsyncGenerator[AsyncSession]:
    """The same for work that only reads: it sees the database as it was at its first look, and waits for
    no writer. Raises DatabaseUnavailable."""
    async with transaction(engine.execution_options(**{READS_ONLY: True})) as session:
        yield session


def driver_errors() -> tuple[type[Exception], ...]:
    """What PostgreSQL's driver raises past SQLAlchemy, as while the server starts. None are there
    where the driver was never needed."""
    driver: Any = sys.modules.get("asyncpg")
    return () if driver is None else (driver.PostgresError, driver.InterfaceError)


def _prepare_sqlite(engine: AsyncEngine, path: str | None, *, is_durable: bool) -> None:
    if path and path != ":memory:":
        Path(path).parent.mkdir(parents=True, exist_ok=True)
    on_connect = _on_durable_connect if is_durable else _on_sqlite_connect
    event.listen(engine.sync_engine, "connect", on_connect)
    event.listen(engine.sync_engine, "begin", _on_sqlite_begin)


def _on_sqlite_connect(connection: Any, record: object) -> None:
    # The driver would begin transactions by itself, too late and without the write lock.
    connection.isolation_level = None
    connection.run_async(_configure)


def _on_durable_connect(connection: Any, record: object) -> None:
    _on_sqlite_connect(connection, record)
    connection.run_async(_wait_for_disk)


async def _wait_for_disk(connection: aiosqlite.Connection) -> None:
    await connection.execute("PRAGMA synchronous=FULL")


async def _configure(connection: aiosqlite.Connection) -> None:
    await connection.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}")
    await connection.execute("PRAGMA foreign_keys=ON")
    await connection.execute("PRAGMA synchronous=NORMAL")
    await _switch_to_wal(connection)


async def _switch_to_wal(connection: aiosqlite.Connection) -> None:
    # The first switch of a new file needs it alone, and SQLite does not wait for that as for a lock.
    for _ in range(WAL_TRIES - 1):
        try:
            await connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError:
            await asyncio.sleep(WAL_RETRY_S)
    await connection.execute("PRAGMA journal_mode=WAL")


def _on_sqlite_begin(connection: Any) -> None:
    # A transaction that began as a reader could not become a writer safely.
    is_reader = connection.get_execution_options().get(READS_ONLY, False)
    connection.exec_driver_sql("BEGIN" if is_reader else "BEGIN IMMEDIATE")
