"""Adding links to the audit's chain, inside somebody's transaction. The only writer of that table."""

from collections.abc import Iterable
from typing import NamedTuple

from sqlalchemy import insert, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from services.streams.archive.digests import Link, next_link
from services.streams.archive.tables import ArchiveCursor, AuditLink

CHAIN, ARCHIVED, GENERATIONS = "chain", "archived", "generations"
"""Rows of archive_cursor."""


class Fact(NamedTuple):
    """What a link shall say: kind, generation_id and digest as in digests.Link."""

    kind: str
    generation_id: str
    digest: str


async def lock_chain(session: AsyncSession) -> int:
    """Be the only one who adds links until the transaction ends; how many there were ever made.

    (PostgreSQL: a lock on the row; SQLite: the transaction has the write lock from its start.)
    """
    query = select(ArchiveCursor.seq).where(ArchiveCursor.name == CHAIN).with_for_update()
    return (await session.execute(query)).scalar_one()


async def append_links(session: AsyncSession, today: str, facts: Iterable[Fact]) -> None:
    """Add a link for each fact. Call `lock_chain` before in the same transaction."""
    last, made = await last_link(session), list[Link]()
    for fact in facts:
        last = next_link(last, today, *fact)
        made.append(last)
    if made:
        await session.execute(insert(AuditLink), [link._asdict() for link in made])
        counted = update(ArchiveCursor).where(ArchiveCursor.name == CHAIN)
        await session.execute(counted.values(seq=ArchiveCursor.seq + len(made)))


async def last_link(session: AsyncSession, *, before_day: str | None = None) -> Link | None:
    """The newest link (of the days before that one), None where there is none."""
    query = select(AuditLink).order_by(AuditLink.day.desc(), AuditLink.position.desc()).limit(1)
    if before_day is not None:
        query = query.where(AuditLink.day < before_day)
    row = (await session.scalars(query)).first()
    return None if row is None else link_of(row)


def link_of(row: AuditLink) -> Link:
    """A row as a link."""
    return Link(*(getattr(row, name) for name in Link._fields))
