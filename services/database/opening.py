"""Opening a database, brought up to date."""

import asyncio
import time

from sqlalchemy.ext.asyncio import AsyncEngine

from services.database.engine import create_engine
from services.database.errors import DatabaseUnavailable
from services.database.schema import ensure_schema

MIGRATE_RETRY_S = 0.5


async def open_database(url: str, *, is_durable: bool = False) -> AsyncEngine:
    """Connect and bring the schema up to date. Dispose of the engine at the end. Raises SchemaTooNew,
    DatabaseUnavailable."""
    engine = create_engine(url, is_durable=is_durable)
    try:
        await ensure_schema(engine)
    except BaseException:
        await engine.dispose()
        raise
    return engine


async def migrate(url: str, patience_s: float) -> None:
    """Bring the database up to date. One that does not answer is tried again for `patience_s` seconds.

    Raises SchemaTooNew, DatabaseUnavailable.
    """
    give_up_at = time.monotonic() + patience_s
    while True:
        try:
            engine = await open_database(url)
            return await engine.dispose()
        except DatabaseUnavailable:
            if time.monotonic() >= give_up_at:
                raise
        await asyncio.sleep(MIGRATE_RETRY_S)
