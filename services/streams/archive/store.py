"""The archive's tables: adding records, finding them, dropping old ones. The only place that knows SQL.

Whoever adds anything does it in one transaction under the chain's lock, so that any number of archivers
may work at once and each generation has one row and one link.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sqlalchemy import delete, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from services.database.engine import reading, transaction
from services.database.opening import open_database
from services.streams.archive.chain import (
    ARCHIVED,
    GENERATIONS,
    Fact,
    append_links,
    last_link,
    lock_chain,
)
from services.streams.archive.digests import GENERATION, RETENTION, Link, anchor_name
from services.streams.archive.known import Archived
from services.streams.archive.summary import Record
from services.streams.archive.tables import (
    ArchiveCursor,
    ArchivedEvents,
    ArchivedGeneration,
    AuditLink,
)

MAX_IDS = 500
"""In one query."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """An archived generation for readers. codec, data: its events, None where they are not kept.

    content: what was to be kept; is_erased: on somebody's order it is no more.
    """

    caller: str
    content: str
    is_erased: bool
    codec: str = ""
    data: bytes | None = None


class ArchiveStore:
    """Short transactions over one database. Event-loop thread; every method raises DatabaseUnavailable."""

    def __init__(self, engine: AsyncEngine) -> None:
        self.engine = engine

    async def close(self) -> None:
        """Give the connections back."""
        await self.engine.dispose()

    async def add(self, records: Sequence[Record], today: str) -> int:
        """Archive what is not archived yet, with a link each; how many those were. All or nothing."""
        async with transaction(self.engine) as session:
            await lock_chain(session)
            known = await _known(session, [record.generation_id for record in records])
            new = {record.generation_id: record for record in records}
            new = {name: record for name, record in new.items() if name not in known}
            if new:
                await _insert(session, list(new.values()), today)
            return len(new)

    async def known(self, generation_ids: Sequence[str]) -> dict[str, Archived]:
        """Those of them that are archived."""
        found: dict[str, Archived] = {}
        for first in range(0, len(generation_ids), MAX_IDS):
            async with reading(self.engine) as session:
                found |= await _known(session, generation_ids[first : first + MAX_IDS])
        return found

    async def find(self, generation_id: str) -> Found | None:
        """One generation with its events; None where it is not archived."""
        async with reading(self.engine) as session:
            row = await session.get(ArchivedGeneration, generation_id)
            if row is None:
                return None
            events = await session.get(ArchivedEvents, generation_id)
            return Found(
                caller=row.caller,
                content=row.content,
                is_erased=row.erased_at_ms is not None,
                codec=events.codec if events else "",
                data=events.data if events else None,
            )

    async def count(self) -> int:
        """How many generations were ever archived."""
        async with reading(self.engine) as session:
            query = select(ArchiveCursor.seq).where(ArchiveCursor.name == ARCHIVED)
            return (await session.execute(query)).scalar_one()

    async def drop_days_before(self, day: str, today: str) -> int:
        """Remove rows, events and links of the days before that one; how many generations those were.

        The newest of these links stays, and a new one says that it is where the chain begins now.
        """
        async with transaction(self.engine) as session:
            await lock_chain(session)
            anchor = await last_link(session, before_day=day)
            if anchor is None or await _is_dropped(session, anchor):
                return 0
            n_dropped = await _drop(session, day)
            older = (AuditLink.day < day) & (AuditLink.chain_digest != anchor.chain_digest)
            await session.execute(delete(AuditLink).where(older))
            fact = Fact(RETENTION, anchor_name(anchor), anchor.chain_digest)
            await append_links(session, today, [fact])
            return n_dropped


async def open_archive(url: str, *, is_durable: bool = False) -> ArchiveStore:
    """Connect and bring the schema up to date. is_durable: see database.engine. Raises SchemaTooNew,
    DatabaseUnavailable."""
    return ArchiveStore(await open_database(url, is_durable=is_durable))


async def _known(session: AsyncSession, generation_ids: Collection[str]) -> dict[str, Archived]:
    table = ArchivedGeneration
    query = select(table.generation_id, table.ended_at_ms, table.erased_at_ms, ArchivedEvents.codec)
    query = query.outerjoin(ArchivedEvents).where(table.generation_id.in_(generation_ids))
    rows = await session.execute(query)
    return {
        row.generation_id: Archived(
            row.ended_at_ms, row.codec is not None, row.erased_at_ms is not None
        )
        for row in rows
    }


async def _insert(session: AsyncSession, records: Sequence[Record], today: str) -> None:
    await session.execute(insert(ArchivedGeneration), [record.columns for record in records])
    events = [
        {"generation_id": record.generation_id, "codec": record.codec, "data": record.events}
        for record in records
        if record.events is not None
    ]
    if events:
        await session.execute(insert(ArchivedEvents), events)
    facts = [Fact(GENERATION, record.generation_id, record.digest) for record in records]
    await append_links(session, today, facts)
    counted = update(ArchiveCursor).where(ArchiveCursor.name == ARCHIVED)
    await session.execute(counted.values(seq=ArchiveCursor.seq + len(records)))
    highest = max(record.last_seq for record in records)
    reached = (ArchiveCursor.name == GENERATIONS) & (ArchiveCursor.seq < highest)
    await session.execute(update(ArchiveCursor).where(reached).values(seq=highest))


async def _is_dropped(session: AsyncSession, anchor: Link) -> bool:
    """Whether all up to that link was removed before."""
    said = (AuditLink.kind == RETENTION) & (AuditLink.generation_id == anchor_name(anchor))
    query = select(func.count()).select_from(AuditLink).where(said)
    return (await session.execute(query)).scalar_one() > 0


async def _drop(session: AsyncSession, day: str) -> int:
    """Generations whose link is of an earlier day."""
    is_old = (AuditLink.day < day) & (AuditLink.kind == GENERATION)
    old = select(AuditLink.generation_id).where(is_old)
    await session.execute(delete(ArchivedEvents).where(ArchivedEvents.generation_id.in_(old)))
    dropped = delete(ArchivedGeneration).where(ArchivedGeneration.generation_id.in_(old))
    result = await session.execute(dropped.returning(ArchivedGeneration.generation_id))
    return len(result.all())
