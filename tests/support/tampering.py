"""Ways to falsify an archive, and what its verification must say of each. For both databases."""

import zlib
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from schemas import codec
from services.database.engine import transaction
from services.streams.archive.digests import chain_digest, events_digest, row_digest
from services.streams.archive.store import ArchiveStore
from services.streams.archive.summary import unpack
from services.streams.archive.tables import ArchivedEvents, ArchivedGeneration, AuditLink
from services.streams.audit.store import AuditStore, facts_of
from services.streams.audit.verification import Finding
from services.streams.audit.verifier import Extent, Verdict, Verifier
from tests.support import events
from tests.support.archive import record_named

DAYS = ("2026-03-01", "2026-03-02", "2026-03-04")
PER_DAY = 4


async def fill(store: ArchiveStore) -> list[str]:
    """Archive a few generations on each of DAYS; their ids in the chain's order."""
    ids: list[str] = []
    for day in DAYS:
        some = [events.new_id() for _ in range(PER_DAY)]
        await store.add([record_named(each) for each in some], day)
        ids += some
    return ids


async def verify(
    engine: AsyncEngine, extent: Extent | None = None
) -> tuple[list[Finding], Verdict]:
    """What is wrong, and the verdict."""
    steps = [step async for step in Verifier(AuditStore(engine), extent or Extent()).run()]
    findings = [step for step in steps if isinstance(step, Finding)]
    verdict = steps[-1]
    assert isinstance(verdict, Verdict)
    assert verdict.n_findings == len(findings)
    return findings, verdict


async def clear(engine: AsyncEngine) -> None:
    """An empty archive again."""
    async with transaction(engine) as session:
        for table in ("archived_events", "archived_generations", "audit_chain"):
            await session.execute(text(f"DELETE FROM {table}"))
        await session.execute(text("UPDATE archive_cursor SET seq = 0"))


class Tampering(NamedTuple):
    """do: falsifies. kinds: of what must be found, in order. whose: indices of the generations."""

    name: str
    do: Callable[[AsyncSession, Sequence[str]], Awaitable[None]]
    kinds: tuple[str, ...]
    whose: tuple[int, ...]


async def _sql(session: AsyncSession, statement: str, **values: object) -> None:
    await session.execute(text(statement), values)


async def _row(session: AsyncSession, generation_id: str) -> ArchivedGeneration:
    row = await session.get(ArchivedGeneration, generation_id)
    assert row is not None
    return row


async def _log(session: AsyncSession, generation_id: str) -> ArchivedEvents:
    log = await session.get(ArchivedEvents, generation_id)
    assert log is not None
    return log


async def _link(session: AsyncSession, day: str, position: int) -> AuditLink:
    link = await session.get(AuditLink, (day, position))
    assert link is not None
    return link


async def a_byte_of_an_answer(session: AsyncSession, ids: Sequence[str]) -> None:
    log = await _log(session, ids[5])
    entries = [[seq, bytearray(data)] for seq, data in unpack(log.data)]
    entries[2][1][-1] ^= 1  # type: ignore[index, operator]
    log.data = zlib.compress(codec.pack([[seq, bytes(data)] for seq, data in entries]))  # type: ignore[arg-type]


async def a_stored_byte(session: AsyncSession, ids: Sequence[str]) -> None:
    log = await _log(session, ids[5])
    middle = len(log.data) // 2
    log.data = log.data[:middle] + bytes([log.data[middle] ^ 1]) + log.data[middle + 1 :]


async def a_sequence(session: AsyncSession, ids: Sequence[str]) -> None:
    log = await _log(session, ids[5])
    entries = [[seq + 1, data] for seq, data in unpack(log.data)]
    log.data = zlib.compress(codec.pack(entries))


async def a_log_and_its_digest(session: AsyncSession, ids: Sequence[str]) -> None:
    await a_byte_of_an_answer(session, ids)
    row, log = await _row(session, ids[5]), await _log(session, ids[5])
    row.events_digest = events_digest(unpack(log.data))


async def logs_of_two(session: AsyncSession, ids: Sequence[str]) -> None:
    # Their events are alike but for the id, which the first one holds.
    first, second = await _log(session, ids[4]), await _log(session, ids[6])
    first.data, second.data = second.data, first.data


async def a_removed_log(session: AsyncSession, ids: Sequence[str]) -> None:
    await _sql(session, "DELETE FROM archived_events WHERE generation_id = :id", id=ids[5])


async def a_log_said_not_to_be_kept(session: AsyncSession, ids: Sequence[str]) -> None:
    await a_removed_log(session, ids)
    (await _row(session, ids[5])).content = "hashes"


async def a_log_said_to_be_erased(session: AsyncSession, ids: Sequence[str]) -> None:
    await a_removed_log(session, ids)
    (await _row(session, ids[5])).erased_at_ms = 1


async def a_fact(session: AsyncSession, ids: Sequence[str]) -> None:
    (await _row(session, ids[5])).caller = "somebody"


async def a_digest(session: AsyncSession, ids: Sequence[str]) -> None:
    (await _row(session, ids[5])).digest = "0" * 64


async def a_fact_and_its_digest(session: AsyncSession, ids: Sequence[str]) -> None:
    row = await _row(session, ids[5])
    row.n_predicted += 1
    row.digest = row_digest(facts_of(row))


async def a_fact_its_digest_and_its_link(session: AsyncSession, ids: Sequence[str]) -> None:
    await a_fact_and_its_digest(session, ids)
    (await _link(session, DAYS[1], 1)).digest = (await _row(session, ids[5])).digest


async def a_link_made_anew(session: AsyncSession, ids: Sequence[str]) -> None:
    await a_fact_its_digest_and_its_link(session, ids)
    before, link = await _link(session, DAYS[1], 0), await _link(session, DAYS[1], 1)
    content = before.chain_digest, link.kind, link.generation_id, link.digest
    link.chain_digest = chain_digest(*content)


async def a_removed_generation(session: AsyncSession, ids: Sequence[str]) -> None:
    await a_removed_log(session, ids)
    await _sql(session, "DELETE FROM archived_generations WHERE generation_id = :id", id=ids[5])


async def a_removed_generation_and_its_link(session: AsyncSession, ids: Sequence[str]) -> None:
    await a_removed_generation(session, ids)
    await _sql(session, "DELETE FROM audit_chain WHERE generation_id = :id", id=ids[5])


async def the_places_closed_up(session: AsyncSession, ids: Sequence[str]) -> None:
    await a_removed_generation_and_its_link(session, ids)
    for position in (2, 3):
        statement = "UPDATE audit_chain SET position = :new WHERE day = :day AND position = :old"
        await _sql(session, statement, new=position - 1, day=DAYS[1], old=position)


async def the_last_of_a_day(session: AsyncSession, ids: Sequence[str]) -> None:
    for table in ("archived_events", "archived_generations", "audit_chain"):
        await _sql(session, f"DELETE FROM {table} WHERE generation_id = :id", id=ids[7])


async def the_last_of_all(session: AsyncSession, ids: Sequence[str]) -> None:
    for table in ("archived_events", "archived_generations", "audit_chain"):
        await _sql(session, f"DELETE FROM {table} WHERE generation_id = :id", id=ids[-1])


async def the_first_day(session: AsyncSession, ids: Sequence[str]) -> None:
    for table in ("archived_events", "archived_generations", "audit_chain"):
        for generation_id in ids[:PER_DAY]:
            await _sql(session, f"DELETE FROM {table} WHERE generation_id = :id", id=generation_id)


async def two_links_changed_places(session: AsyncSession, ids: Sequence[str]) -> None:
    statement = "UPDATE audit_chain SET position = :new WHERE day = :day AND position = :old"
    for old, new in ((1, 99), (2, 1), (99, 2)):
        await _sql(session, statement, new=new, day=DAYS[1], old=old)


async def two_links_changed_contents(session: AsyncSession, ids: Sequence[str]) -> None:
    first, second = await _link(session, DAYS[1], 1), await _link(session, DAYS[1], 2)
    for name in ("generation_id", "digest"):
        ours, theirs = getattr(first, name), getattr(second, name)
        setattr(first, name, theirs)
        setattr(second, name, ours)


async def an_added_generation(session: AsyncSession, ids: Sequence[str]) -> None:
    row = facts_of(await _row(session, ids[5]))
    added = ArchivedGeneration(**{**row, "generation_id": f"{ids[5][:-4]}0000"})
    added.digest = row_digest(facts_of(added))
    session.add(added)


_LOG, _ROW = ("changed_events",), ("changed_row",)
TAMPERINGS = [
    Tampering(function.__name__, function, kinds, whose)
    for function, kinds, whose in (
        (a_byte_of_an_answer, _LOG, (5,)),
        (a_stored_byte, _LOG, (5,)),
        (a_sequence, _LOG, (5,)),
        (a_log_and_its_digest, _ROW, (5,)),
        (logs_of_two, _LOG * 2, (4, 6)),
        (a_removed_log, ("missing_events",), (5,)),
        (a_log_said_not_to_be_kept, _ROW, (5,)),
        (a_log_said_to_be_erased, _ROW, (5,)),
        (a_fact, _ROW, (5,)),
        (a_digest, _ROW, (5,)),
        (a_fact_and_its_digest, _ROW, (5,)),
        (a_fact_its_digest_and_its_link, ("broken_chain",), (5,)),
        (a_link_made_anew, ("broken_chain",), (6,)),
        (a_removed_generation, ("missing_row",), (5,)),
        (a_removed_generation_and_its_link, ("missing_link",), (6,)),
        (the_places_closed_up, ("broken_chain",), (6,)),
        (the_last_of_a_day, ("broken_chain",), (8,)),
        (the_last_of_all, ("missing_link",), ()),
        (the_first_day, ("missing_link",), (4,)),
        (two_links_changed_places, ("reordered",) * 3, (6, 5, 7)),
        (two_links_changed_contents, ("reordered",) * 2, (6, 5)),
        (an_added_generation, ("unlinked_row",), ()),
    )
]


async def tamper(engine: AsyncEngine, tampering: Tampering, ids: Sequence[str]) -> None:
    """Falsify."""
    async with transaction(engine) as session:
        await tampering.do(session, ids)


def check(tampering: Tampering, findings: Sequence[Finding], ids: Sequence[str]) -> None:
    """All of it was found, and nothing else; where it is."""
    assert [each.kind for each in findings] == list(tampering.kinds), findings
    for index, finding in zip(tampering.whose, findings, strict=False):
        assert finding.generation_id == ids[index], findings
