"""The registry and the lifecycle's history, over sessions. The only place that reads or writes the tables."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from schemas.lifecycle import UNLOADED
from services.database.engine import transaction
from services.database.opening import open_database
from services.models.catalog import ModelSpec, Registered
from services.models.downloads.receipts import Receipt
from services.models.files import FileFacts, FileIdentity
from services.models.lifecycle import Verdict
from services.models.tables import DownloadRow, ModelRow, ModelStateRow, ModelTransitionRow


@dataclass(frozen=True, kw_only=True)
class Transition:
    """One change of status, as the history holds it."""

    from_status: str
    to_status: str
    reason: str
    engine: str
    error: str
    at_ms: int


class Registry:
    """Short transactions over one database. Event-loop thread; every method raises DatabaseUnavailable."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def close(self) -> None:
        """Give the connections back."""
        await self._engine.dispose()

    async def register(self, spec: ModelSpec, file: FileIdentity, at_ms: int) -> Registered:
        """Insert or update a model. The digest is kept while the file has the same identity."""
        async with transaction(self._engine) as session:
            row = await session.get(ModelRow, spec.key, with_for_update=True)
            if row is None:
                row = ModelRow(key=spec.key, digest="", header={}, created_at_ms=at_ms)
                session.add(row)
            elif (row.path, row.size_bytes, row.mtime_ns) != _identity(file):
                row.digest, row.header = "", {}
            _describe(row, spec, file)
            return Registered(created_at_ms=row.created_at_ms, digest=row.digest)

    async def learn(self, key: str, file: FileIdentity, facts: FileFacts) -> bool:
        """Store what reading the file said; False if the registry speaks of another file by now."""
        async with transaction(self._engine) as session:
            row = await session.get(ModelRow, key, with_for_update=True)
            if row is None or (row.path, row.size_bytes, row.mtime_ns) != _identity(file):
                return False
            row.digest, row.header = facts.digest, facts.header
            return True

    async def models(self) -> list[ModelSpec]:
        """All of them, by name."""
        async with transaction(self._engine) as session:
            rows = (await session.scalars(select(ModelRow).order_by(ModelRow.name))).all()
            return [_as_spec(row) for row in rows]

    async def record(self, key: str, verdict: Verdict, at_ms: int) -> bool:
        """Make `verdict` the current state; its transition, if it is one, in the same transaction.

        What it changes from is what the database says, so the history is a chain whoever writes it.
        Returns whether there was a transition.
        """
        async with transaction(self._engine) as session:
            row = await _state_of(session, key)
            before = row.status
            if before != verdict.status:
                session.add(_transition(key, before, verdict, at_ms))
                row.changed_at_ms = at_ms
            row.status, row.progress = verdict.status, verdict.progress
            row.error, row.engine = verdict.error, verdict.engine
            return before != verdict.status

    async def status(self, key: str) -> str:
        """The current status; `unloaded` for a model that has none yet."""
        async with transaction(self._engine) as session:
            row = await session.get(ModelStateRow, key)
            return UNLOADED if row is None else row.status

    async def history(self, key: str) -> list[Transition]:
        """All changes of status, oldest first."""
        query = (
            select(ModelTransitionRow)
            .where(ModelTransitionRow.model_key == key)
            .order_by(ModelTransitionRow.id)
        )
        async with transaction(self._engine) as session:
            return [_as_transition(row) for row in (await session.scalars(query)).all()]

    async def note_downloads(self, receipts: Sequence[Receipt]) -> None:
        """Add those that are not there yet."""
        async with transaction(self._engine) as session:
            for receipt in receipts:
                if await session.get(DownloadRow, receipt.id) is None:
                    session.add(DownloadRow(**asdict(receipt)))

    async def downloads(self) -> list[Receipt]:
        """All of them, oldest first."""
        query = select(DownloadRow).order_by(DownloadRow.ended_at_ms, DownloadRow.id)
        async with transaction(self._engine) as session:
            return [_as_receipt(row) for row in (await session.scalars(query)).all()]


async def open_registry(url: str) -> Registry:
    """Connect and bring the schema up to date. Raises SchemaTooNew, DatabaseUnavailable."""
    return Registry(await open_database(url))


def _identity(file: FileIdentity) -> tuple[str, int, int]:
    return file.path, file.size_bytes, file.mtime_ns


def _describe(row: ModelRow, spec: ModelSpec, file: FileIdentity) -> None:
    row.name, row.aliases, row.tags = spec.name, list(spec.aliases), list(spec.tags)
    row.path, row.size_bytes, row.mtime_ns = _identity(file)


async def _state_of(session: AsyncSession, key: str) -> ModelStateRow:
    row = await session.get(ModelStateRow, key, with_for_update=True)
    if row is None:
        row = ModelStateRow(
            model_key=key, status=UNLOADED, progress=0.0, error="", engine="", changed_at_ms=0
        )
        session.add(row)
    return row


def _transition(key: str, before: str, verdict: Verdict, at_ms: int) -> ModelTransitionRow:
    return ModelTransitionRow(
        model_key=key,
        from_status=before,
        to_status=verdict.status,
        reason=verdict.reason.value,
        engine=verdict.engine,
        error=verdict.error,
        at_ms=at_ms,
    )


def _as_receipt(row: DownloadRow) -> Receipt:
    return Receipt(**{field.name: getattr(row, field.name) for field in fields(Receipt)})


def _as_spec(row: ModelRow) -> ModelSpec:
    return ModelSpec(
        key=row.key,
        name=row.name,
        path=row.path,
        aliases=tuple(row.aliases),
        tags=tuple(row.tags),
    )


def _as_transition(row: ModelTransitionRow) -> Transition:
    return Transition(
        from_status=row.from_status,
        to_status=row.to_status,
        reason=row.reason,
        engine=row.engine,
        error=row.error,
        at_ms=row.at_ms,
    )
