"""What the audit reads of the archive's tables. Short transactions: whoever archives waits for none long."""

from collections.abc import Collection, Sequence
from typing import cast

from sqlalchemy import Select, func, select, tuple_
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from services.database.engine import reading
from services.streams.archive.chain import CHAIN, link_of
from services.streams.archive.digests import ERASURE, GENERATION, Link
from services.streams.archive.tables import (
    ArchiveCursor,
    ArchivedEvents,
    ArchivedGeneration,
    AuditLink,
)
from services.streams.audit.filters import Cursor, Filter, PageQuery
from services.streams.audit.verification import Columns, Loaded, Packed, Subject

FACTS = tuple(column.key for column in ArchivedGeneration.__table__.columns)
"""Names of a generation's facts: the columns of its row, in order."""
MAX_IDS = 500
Place = tuple[str, int]


class AuditStore:
    """Reads one database. Event-loop thread; every method raises DatabaseUnavailable."""

    def __init__(self, engine: AsyncEngine) -> None:
        self.engine = engine

    async def page(self, query: PageQuery) -> list[Columns]:
        """Facts of generations, newest first."""
        wanted = _page(query)
        async with reading(self.engine) as session:
            return [facts_of(row) for row in await session.scalars(wanted)]

    async def facts(self, generation_id: str) -> Columns | None:
        """All that is known of one generation but its events."""
        async with reading(self.engine) as session:
            row = await session.get(ArchivedGeneration, generation_id)
            return None if row is None else facts_of(row)

    async def packed(self, generation_ids: Collection[str]) -> dict[str, Packed]:
        """The logs of those that have one."""
        table = ArchivedEvents
        query = select(table.generation_id, table.codec, table.data)
        async with reading(self.engine) as session:
            rows = await session.execute(query.where(table.generation_id.in_(generation_ids)))
            return {row.generation_id: Packed(row.codec, row.data) for row in rows}

    async def ids_of_caller(self, caller: str, limit: int) -> list[str]:
        """Generations of that caller that are not erased."""
        table = ArchivedGeneration
        of_caller = (table.caller == caller) & table.erased_at_ms.is_(None)
        query = select(table.generation_id).where(of_caller).order_by(table.created_at_ms)
        async with reading(self.engine) as session:
            return list(await session.scalars(query.limit(limit)))

    async def n_links(self) -> int:
        """How many links were ever made."""
        query = select(ArchiveCursor.seq).where(ArchiveCursor.name == CHAIN)
        async with reading(self.engine) as session:
            return (await session.execute(query)).scalar_one()

    async def links_after(self, place: Place | None, limit: int) -> list[Link]:
        """Links behind that place, in order; None: from the beginning."""
        query = select(AuditLink).order_by(AuditLink.day, AuditLink.position).limit(limit)
        if place is not None:
            query = query.where(tuple_(AuditLink.day, AuditLink.position) > place)
        return await self._links(query)

    async def link_before(self, place: Place | None) -> Link | None:
        """The last link before that place; None: the last of all."""
        order = AuditLink.day.desc(), AuditLink.position.desc()
        query = select(AuditLink).order_by(*order).limit(1)
        if place is not None:
            query = query.where(tuple_(AuditLink.day, AuditLink.position) < place)
        return next(iter(await self._links(query)), None)

    async def link_at(self, place: Place) -> Link | None:
        day, position = place
        wanted = (AuditLink.day == day) & (AuditLink.position == position)
        return next(iter(await self._links(select(AuditLink).where(wanted))), None)

    async def links_of(self, generation_id: str) -> list[Link]:
        """Links that name that generation, in order."""
        query = select(AuditLink).where(AuditLink.generation_id == generation_id)
        return await self._links(query.order_by(AuditLink.day, AuditLink.position))

    async def unlinked(
        self, after: str, limit: int, archived_ms: tuple[int, int]
    ) -> tuple[list[str], str | None]:
        """Of the next `limit` generations behind that id, those that no link names; and the last id
        that was looked at, None at the end. archived_ms: when they were archived, the first inclusive,
        the last not."""
        table = ArchivedGeneration
        is_meant = table.archived_at_ms.between(archived_ms[0], archived_ms[1] - 1)
        query = select(table.generation_id).where(table.generation_id > after, is_meant)
        async with reading(self.engine) as session:
            found = await session.scalars(query.order_by(table.generation_id).limit(limit))
            ids = list(found)
            linked = await _named(session, ids, GENERATION)
        return [each for each in ids if each not in linked], ids[-1] if ids else None

    async def load(self, links: Sequence[Link]) -> list[Loaded]:
        """What the archive has of these links' generations. At most MAX_IDS of them."""
        ids = {link.generation_id for link in links}
        events = ArchivedEvents
        sizes = select(events.generation_id, func.length(events.data)).where(
            events.generation_id.in_(ids)
        )
        async with reading(self.engine) as session:
            query = select(ArchivedGeneration).where(ArchivedGeneration.generation_id.in_(ids))
            rows = {row.generation_id: facts_of(row) for row in await session.scalars(query)}
            n_bytes = {row[0]: cast(int, row[1]) for row in await session.execute(sizes)}
            linked = await _named(session, ids, GENERATION)
            erased = await _named(session, ids, ERASURE)
        return [
            Loaded(
                Subject(
                    link=link,
                    columns=rows.get(link.generation_id),
                    events_digest=None,
                    is_linked=link.generation_id in linked,
                    is_erased=link.generation_id in erased,
                ),
                n_bytes.get(link.generation_id, -1),
            )
            for link in links
        ]

    async def _links(self, query: Select[tuple[AuditLink]]) -> list[Link]:
        async with reading(self.engine) as session:
            return [link_of(row) for row in await session.scalars(query)]


async def _named(session: AsyncSession, ids: Collection[str], kind: str) -> set[str]:
    """Those of them that a link of that kind names."""
    is_named = AuditLink.generation_id.in_(ids) & (AuditLink.kind == kind)
    return set(await session.scalars(select(AuditLink.generation_id).where(is_named)))


def facts_of(row: ArchivedGeneration) -> Columns:
    """A row by the names of its columns."""
    return {name: getattr(row, name) for name in FACTS}


def _page(query: PageQuery) -> Select[tuple[ArchivedGeneration]]:
    table = ArchivedGeneration
    found = _filtered(select(table), query.wanted)
    if query.after is not None:
        found = _behind(found, query.after)
    return found.order_by(table.created_at_ms.desc(), table.generation_id.desc()).limit(query.limit)


def _behind(
    found: Select[tuple[ArchivedGeneration]], after: Cursor
) -> Select[tuple[ArchivedGeneration]]:
    table = ArchivedGeneration
    place = tuple_(table.created_at_ms, table.generation_id)
    # The first condition follows from the second, and is the one that an index answers.
    return found.where(table.created_at_ms <= after.created_at_ms, place < tuple(after))


def _filtered(
    found: Select[tuple[ArchivedGeneration]], wanted: Filter
) -> Select[tuple[ArchivedGeneration]]:
    table = ArchivedGeneration
    for name in ("caller", "model", "outcome", "dialect"):
        if value := getattr(wanted, name):
            found = found.where(getattr(table, name) == value)
    if wanted.id_prefix:
        found = found.where(table.generation_id.startswith(wanted.id_prefix, autoescape=True))
    if wanted.from_ms is not None:
        found = found.where(table.created_at_ms >= wanted.from_ms)
    if wanted.to_ms is not None:
        found = found.where(table.created_at_ms < wanted.to_ms)
    return found
