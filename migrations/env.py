"""Run by Alembic, never imported: connects with an asynchronous driver and runs the migrations.

The whole upgrade is one transaction that holds a lock from its start, so that of several processes
starting at once one migrates and the others find nothing left to do.
"""

import asyncio
import os

from alembic import context
from sqlalchemy import Connection, text

from services.database.base import Base
from services.database.engine import create_engine
from services.models import tables as models_tables
from services.models.keys import tables as keys_tables
from services.streams.archive import tables as archive_tables

OWNERS = (models_tables, keys_tables, archive_tables)
"""Whoever has tables; importing them is what puts these into `Base.metadata`."""

ADVISORY_LOCK = 0x11A3A7A9E
"""Any constant; PostgreSQL's lock for migrations of this application."""


def database_url() -> str:
    """From the caller's code, else from the environment (the `alembic` command)."""
    url = context.config.attributes.get("url") or os.environ.get("LLAMATAPE_DATABASE_URL")
    if not url:
        raise SystemExit("set LLAMATAPE_DATABASE_URL, e.g. sqlite+aiosqlite:///llamatape.db")
    return url


def run(connection: Connection) -> None:
    """Migrate over an open connection."""
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        render_as_batch=True,
        transactional_ddl=True,  # true of SQLite too, though Alembic does not assume it
        compare_type=True,
    )
    with context.begin_transaction():
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": ADVISORY_LOCK})
        context.run_migrations()


async def run_online(url: str) -> None:
    """Connect, migrate, disconnect."""
    engine = create_engine(url)
    try:
        async with engine.connect() as connection:
            await connection.run_sync(run)
    finally:
        await engine.dispose()


def run_offline(url: str) -> None:
    """Print the SQL instead of running it."""
    context.configure(url=url, target_metadata=Base.metadata, literal_binds=True)
    with context.begin_transaction():
        context.run_migrations()


if context.is_offline_mode():
    run_offline(database_url())
else:
    asyncio.run(run_online(database_url()))
