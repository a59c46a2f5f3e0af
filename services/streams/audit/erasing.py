"""Erasure in the database: content goes, a tombstone and its link stay. All or nothing."""

from collections.abc import Sequence
from typing import NamedTuple, cast

from sqlalchemy import delete, select, text, update
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from services.database.engine import transaction
from services.streams.archive.chain import Fact, append_links, lock_chain
from services.streams.archive.digests import ERASURE, day_of
from services.streams.archive.tables import ArchivedEvents, ArchivedGeneration
from services.streams.audit.redaction import redacted
from services.streams.audit.store import facts_of


class Erased(NamedTuple):
    """What was erased, by the names that its log and its conversation have on the broker."""

    generation_id: str
    caller: str
    conversation: str | None


async def erase(engine: AsyncEngine, ids: Sequence[str], now_ms: int) -> list[Erased]:
    """Erase those of these archived generations that are not erased yet. At most some hundreds.

    Raises DatabaseUnavailable; nothing was erased then.
    """
    async with transaction(engine) as session:
        if engine.dialect.name == "sqlite":
            await session.execute(text("PRAGMA secure_delete=ON"))
        await lock_chain(session)
        table = ArchivedGeneration
        is_meant = table.generation_id.in_(ids) & table.erased_at_ms.is_(None)
        rows = list(await session.scalars(select(table).where(is_meant)))
        facts = [await _erase(session, row, now_ms) for row in rows]
        await append_links(session, day_of(now_ms), facts)
        erased = [Erased(row.generation_id, row.caller, row.conversation) for row in rows]
    await _forget_old_pages(engine)
    return erased


async def _erase(session: AsyncSession, row: ArchivedGeneration, now_ms: int) -> Fact:
    left = redacted(facts_of(row), now_ms)
    events, table = ArchivedEvents, ArchivedGeneration
    await session.execute(delete(events).where(events.generation_id == row.generation_id))
    is_it = table.generation_id == row.generation_id
    # Past the object in memory, which still says what there was.
    statement = update(table).where(is_it).values(left)
    await session.execute(statement, execution_options={"synchronize_session": False})
    return Fact(ERASURE, row.generation_id, cast(str, left["digest"]))


async def _forget_old_pages(engine: AsyncEngine) -> None:
    """SQLite's journal holds pages as they were until they are copied into the file."""
    if engine.dialect.name == "sqlite":
        async with engine.connect() as connection:
            driver = await connection.get_raw_connection()
            assert driver.driver_connection is not None
            await driver.driver_connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
