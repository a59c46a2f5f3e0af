"""Bringing the database to today's schema: a cheap look first, Alembic only where it is behind."""

import asyncio
import logging
import threading

from sqlalchemy import Connection, inspect, text
from sqlalchemy.ext.asyncio import AsyncEngine

from services.database.engine import transaction
from services.database.errors import SchemaTooNew
from services.logs import event

log = logging.getLogger(__name__)

HEAD = "0004"
"""The newest revision in `migrations/versions`. Revisions are numbers of four digits, so they sort."""

VERSION_TABLE = "alembic_version"
_ALEMBIC = threading.Lock()
"""Alembic keeps its configuration in a global: two upgrades in one process would mix them up."""


async def ensure_schema(engine: AsyncEngine) -> None:
    """Create or upgrade the tables; several starters at once wait for one another.

    Raises SchemaTooNew, DatabaseUnavailable.
    """
    revision = await current_revision(engine)
    if revision > HEAD:
        raise SchemaTooNew(f"the database has revision {revision}, this Llamatape knows {HEAD}")
    if revision < HEAD:
        event(log, "schema_upgrade", before=revision or "none", after=HEAD)
        await asyncio.to_thread(_upgrade, engine.url.render_as_string(hide_password=False))


async def current_revision(engine: AsyncEngine) -> str:
    """The revision that the database is stamped with, empty for a new one. Raises DatabaseUnavailable."""
    async with transaction(engine) as session:
        return await (await session.connection()).run_sync(_stamp)


def _stamp(connection: Connection) -> str:
    if not inspect(connection).has_table(VERSION_TABLE):
        return ""
    return connection.scalar(text(f"SELECT version_num FROM {VERSION_TABLE}")) or ""


def _upgrade(url: str) -> None:
    # Importing Alembic costs as much as all the rest of the start; most starts do not need it.
    from services.database.migrate import upgrade

    with _ALEMBIC:
        upgrade(url)
