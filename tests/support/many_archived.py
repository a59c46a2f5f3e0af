"""Ten thousand archived generations, quickly, and the times that looking at them may take."""

import time
from collections.abc import Awaitable
from typing import TypeVar

import msgspec

from schemas.events import Requested, encode_entry
from schemas.ids import derived_generation_id
from services.bus.log import Entry
from services.streams.archive.digests import day_of
from services.streams.archive.store import ArchiveStore
from services.streams.archive.summary import Record, record_of
from services.streams.audit.filters import PageQuery, parse_query
from services.streams.audit.store import AuditStore
from tests.golden.cases import CASES, CREATED_AT_MS
from tests.support.tampering import verify

N = 10_000
BATCH = 500
STEP_MS = 60_000
PAGE_S, FILTER_S, VERIFY_S = 1.0, 1.0, 30.0
"""What a page, a page of few among many, and the whole verification may take on a loaded machine."""
CASE = CASES["simple.openai.chat"]
REST = [(event,) for event in CASE[1:]]
PACKED = [(events, encode_entry(events)) for events in REST]

T = TypeVar("T")


def record(number: int) -> Record:
    """Number `number` of them: a minute after the one before, of one of 100 callers."""
    created_at_ms = CREATED_AT_MS + number * STEP_MS
    first = CASE[0]
    assert isinstance(first, Requested)
    opened = msgspec.structs.replace(
        first,
        generation_id=derived_generation_id("many", str(number)),
        caller=f"k{number % 100}",
        created_at_ms=created_at_ms,
    )
    entries = [((opened,), encode_entry((opened,))), *PACKED]
    log = [Entry(number * 10 + i, 0, *each) for i, each in enumerate(entries)]
    made = record_of(log, archived_at_ms=created_at_ms)
    assert made is not None
    return made


async def fill(store: ArchiveStore) -> None:
    """Archive N generations, over a week."""
    for first in range(0, N, BATCH):
        records = [record(number) for number in range(first, first + BATCH)]
        await store.add(records, day_of(CREATED_AT_MS + first * STEP_MS))


async def timed(work: Awaitable[T]) -> tuple[T, float]:
    begun_at = time.perf_counter()
    return await work, time.perf_counter() - begun_at


async def look(store: ArchiveStore) -> dict[str, float]:
    """Look at them in all the ways there are; seconds that each took. Fails where it takes too long."""
    audit, took = AuditStore(store.engine), dict[str, float]()
    deep = parse_query({"after": f"{CREATED_AT_MS + N // 2 * STEP_MS}.{'0' * 36}"})
    filters = {
        "newest": (PageQuery(), 50, PAGE_S),
        "deep": (deep, 50, PAGE_S),
        "caller": (parse_query({"caller": "k7", "limit": "1000"}), 100, FILTER_S),
        "hour": (
            parse_query({"from": str(CREATED_AT_MS), "to": str(CREATED_AT_MS + 60 * STEP_MS)}),
            50,
            FILTER_S,
        ),
        "id": (parse_query({"id": record(77).generation_id}), 1, FILTER_S),
        "nothing": (parse_query({"model": "x"}), 0, FILTER_S),
    }
    for name, (query, n_rows, limit_s) in filters.items():
        rows, took[name] = await timed(audit.page(query))
        assert len(rows) == n_rows, name
        assert took[name] < limit_s, (name, took)
    (findings, verdict), took["verify"] = await timed(verify(store.engine))
    assert (findings, verdict.n_links) == ([], N)
    assert took["verify"] < VERIFY_S, took
    return took
