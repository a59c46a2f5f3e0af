"""The archive of one broker over one database, put together so that tests say when it works."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
from sqlalchemy import select

from schemas.events import Event, Requested, encode_entry
from schemas.generation import Generation
from services.bus.connection import Bus
from services.bus.log import Entry, LogWriter, read_log
from services.bus.store import fullness
from services.bus.stored_logs import last_entries, purge_log, stored_logs
from services.database.engine import transaction
from services.streams.archive.archiver import Archiver
from services.streams.archive.chain import link_of
from services.streams.archive.config import ArchiveSettings
from services.streams.archive.digests import Link, is_next
from services.streams.archive.store import ArchiveStore
from services.streams.archive.summary import Record, record_of
from services.streams.archive.sweep import ArchiveSweep
from services.streams.archive.tables import ArchivedEvents, ArchivedGeneration, AuditLink
from services.streams.archive.writing import RecordWriter
from tests.golden.cases import CASES, Case
from tests.support import events

DAY_MS = 86_400_000
ENDED_AT_MS = events.CREATED_AT_MS + 5_000


@dataclass
class Clock:
    """Unix milliseconds, moved by tests."""

    ms: int = ENDED_AT_MS + 60_000

    def __call__(self) -> int:
        return self.ms


@dataclass
class TestLogs:
    """All logs of a broker. purges: what was purged, and whether an entry was left. said: how full the
    store is said to be, at each look, then empty; is_told: else it is as full as it is."""

    __test__ = False
    bus: Bus
    purges: list[tuple[str, bool]] = field(default_factory=list[tuple[str, bool]])
    said: list[float] = field(default_factory=list[float])
    is_told: bool = True

    async def all(self) -> dict[str, int]:
        return await stored_logs(self.bus)

    async def last_entries(self, generation_ids: Sequence[str]) -> dict[str, Entry]:
        return await last_entries(self.bus, generation_ids)

    async def purge(self, generation_id: str, *, keep_last: bool) -> None:
        self.purges.append((generation_id, keep_last))
        await purge_log(self.bus, generation_id, keep_last=keep_last)

    async def fullness(self) -> float:
        if not self.is_told:
            return await fullness(self.bus)
        return self.said.pop(0) if self.said else 0.0


class Rig:
    """An archiver and a sweep with a clock of their own. The store is the caller's."""

    def __init__(
        self, bus: Bus, store: ArchiveStore, settings: ArchiveSettings | None = None
    ) -> None:
        self.clock = Clock()
        self.bus, self.store, self.logs = bus, store, TestLogs(bus)
        self.writer = RecordWriter(store, self.clock, first_retry_s=0.01)
        self.archiver = Archiver(self.writer, self._read, self._digest, self.clock)
        self.sweep = ArchiveSweep(
            self.logs, store, self.archiver.archive, settings or ArchiveSettings(), self.clock
        )

    async def archive(self, *generation_ids: str) -> int:
        return await self.archiver.archive(generation_ids)

    async def purge(self, generation_id: str, *, keep_last: bool = False) -> None:
        await purge_log(self.bus, generation_id, keep_last=keep_last)

    async def _read(self, generation_id: str) -> list[Entry]:
        return await read_log(self.bus, generation_id)

    async def _digest(self, model_key: str) -> str:
        return f"digest of {model_key}"[:64]


async def write_case(bus: Bus, case: Case, **changes: object) -> str:
    """Store a log with these events, each an entry of its own, under an id of its own."""
    generation_id, writer, state = events.new_id(), LogWriter(bus), Generation()
    for event in case:
        state = await writer.append(state, generation_id, renamed(event, generation_id, changes))
    return generation_id


def renamed(event: Event, generation_id: str, changes: dict[str, object]) -> Event:
    if not isinstance(event, Requested):
        return event
    return msgspec.structs.replace(event, generation_id=generation_id, **changes)


def entries_of(case: Case) -> list[Entry]:
    """The log of a case as the broker would give it."""
    return [
        Entry(index + 1, index, (event,), encode_entry((event,)))
        for index, event in enumerate(case)
    ]


def record_named(generation_id: str, ended_at_ms: int = ENDED_AT_MS) -> Record:
    """A record that holds nothing but what the tables ask for."""
    import msgspec

    case = [renamed(event, generation_id, {}) for event in CASES["simple.openai.chat"]]
    case[-1] = msgspec.structs.replace(case[-1], at_ms=ended_at_ms)  # type: ignore[type-var]
    record = record_of(entries_of(case), archived_at_ms=ended_at_ms)
    assert record is not None
    return record


async def links(store: ArchiveStore) -> list[Link]:
    query = select(AuditLink).order_by(AuditLink.day, AuditLink.position)
    async with transaction(store.engine) as session:
        return [link_of(row) for row in await session.scalars(query)]


async def ids_of(store: ArchiveStore, table: type) -> list[str]:
    async with transaction(store.engine) as session:
        return sorted(await session.scalars(select(table.generation_id)))  # type: ignore[attr-defined]


async def check(store: ArchiveStore, generation_ids: Sequence[str]) -> None:
    """Each is there once, with its events, in a chain without a break."""
    assert await ids_of(store, ArchivedGeneration) == sorted(generation_ids)
    assert await ids_of(store, ArchivedEvents) == sorted(generation_ids)
    found = await links(store)
    assert sorted(link.generation_id for link in found) == sorted(generation_ids)
    for last, link in zip([None, *found], found, strict=False):
        assert is_next(last, link)
    assert await store.count() == len(generation_ids)
