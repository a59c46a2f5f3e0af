"""The keys in the database. The only place that reads or writes their table."""

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import func, or_, select
from sqlalchemy.ext.asyncio import AsyncEngine

from schemas.keys import KeyLimits, KeyRecord
from services.database.engine import transaction
from services.database.opening import open_database
from services.models.errors import AmbiguousKey, UnknownKey
from services.models.keys.tables import ApiKeyRow


class Stand(NamedTuple):
    """What is different after every change of the table. Times are Unix milliseconds."""

    n_rows: int
    n_revoked: int
    last_created_at_ms: int
    last_revoked_at_ms: int


class KeyStore:
    """Short transactions over one database. Event-loop thread; every method raises DatabaseUnavailable."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def close(self) -> None:
        """Give the connections back."""
        await self._engine.dispose()

    async def add(self, record: KeyRecord) -> None:
        async with transaction(self._engine) as session:
            session.add(_row(record))

    async def all(self) -> list[KeyRecord]:
        """Every key that ever was, the oldest first."""
        query = select(ApiKeyRow).order_by(ApiKeyRow.created_at_ms, ApiKeyRow.id)
        async with transaction(self._engine) as session:
            return [_record(row) for row in await session.scalars(query)]

    async def revoke(self, id_or_name: str, at_ms: int) -> KeyRecord:
        """The key, which opens nothing from that Unix time on; one that was revoked stays as it is.

        Raises UnknownKey, and AmbiguousKey where several living keys have that name.
        """
        query = (
            select(ApiKeyRow)
            .where(or_(ApiKeyRow.id == id_or_name, ApiKeyRow.name == id_or_name))
            .with_for_update()
        )
        async with transaction(self._engine) as session:
            row = _the_one(list(await session.scalars(query)), id_or_name)
            row.revoked_at_ms = row.revoked_at_ms or at_ms
            return _record(row)

    async def stand(self) -> Stand:
        """A cheap look at whether anything has changed."""
        query = select(
            func.count(),
            func.count(func.nullif(ApiKeyRow.revoked_at_ms, 0)),
            func.coalesce(func.max(ApiKeyRow.created_at_ms), 0),
            func.coalesce(func.max(ApiKeyRow.revoked_at_ms), 0),
        )
        async with transaction(self._engine) as session:
            return Stand(*(await session.execute(query)).one())


async def open_keys(url: str) -> KeyStore:
    """The keys of that database, which is brought up to date first. Raises SchemaTooNew,
    DatabaseUnavailable."""
    return KeyStore(await open_database(url))


def _the_one(rows: Sequence[ApiKeyRow], id_or_name: str) -> ApiKeyRow:
    found = [row for row in rows if row.id == id_or_name]
    found = found or [row for row in rows if not row.revoked_at_ms] or rows[-1:]
    if not found:
        raise UnknownKey(f"there is no key {id_or_name!r}; `llamatape keys list` shows them")
    if len(found) > 1:
        ids = ", ".join(row.id for row in found)
        raise AmbiguousKey(f"several keys are named {id_or_name!r}; say which: {ids}")
    return found[0]


def _row(record: KeyRecord) -> ApiKeyRow:
    return ApiKeyRow(
        id=record.id,
        digest=record.digest,
        name=record.name,
        scopes=list(record.scopes),
        models=list(record.models),
        requests_per_minute=record.limits.requests_per_minute,
        tokens_per_minute=record.limits.tokens_per_minute,
        concurrent=record.limits.concurrent,
        content=record.content,
        created_at_ms=record.created_at_ms,
        expires_at_ms=record.expires_at_ms,
        revoked_at_ms=record.revoked_at_ms,
    )


def _record(row: ApiKeyRow) -> KeyRecord:
    return KeyRecord(
        id=row.id,
        digest=row.digest,
        name=row.name,
        scopes=tuple(row.scopes),
        models=tuple(row.models),
        limits=KeyLimits(
            requests_per_minute=row.requests_per_minute,
            tokens_per_minute=row.tokens_per_minute,
            concurrent=row.concurrent,
        ),
        content=row.content,
        created_at_ms=row.created_at_ms,
        expires_at_ms=row.expires_at_ms,
        revoked_at_ms=row.revoked_at_ms,
    )
