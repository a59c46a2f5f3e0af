"""The journal: in order, nothing lost, nobody waits."""

import asyncio

import pytest

from services.database.errors import DatabaseUnavailable
from services.models import journal
from services.models.catalog import ModelSpec, Registered
from services.models.files import FileFacts, FileIdentity
from services.models.journal import Journal
from services.models.lifecycle import Reason, Verdict

LOADING = Verdict(status="loading", reason=Reason.ORDERED)
LOADED = Verdict(status="loaded", reason=Reason.ENGINE_LOADED)
LOST = Verdict(status="loading", reason=Reason.ENGINE_LOST)
STOPPED = Verdict(status="unloaded", reason=Reason.STOPPED)


class Records:
    """Remembers what was written; fails as often as told."""

    def __init__(self, n_failures: int = 0) -> None:
        self.n_failures = n_failures
        self.written: list[tuple[str, Verdict, int]] = []

    async def register(self, spec: ModelSpec, file: FileIdentity, at_ms: int) -> Registered:
        return Registered(created_at_ms=at_ms)

    async def learn(self, key: str, file: FileIdentity, facts: FileFacts) -> bool:
        return True

    async def record(self, key: str, verdict: Verdict, at_ms: int) -> bool:
        if self.n_failures:
            self.n_failures -= 1
            raise DatabaseUnavailable("away")
        self.written.append((key, verdict, at_ms))
        return True

    async def close(self) -> None:
        pass


async def run(added: Journal, records: Records) -> None:
    writing = asyncio.create_task(added.run(records))
    await added.flush(5)
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)


async def test_verdicts_are_written_in_order_with_their_own_times() -> None:
    records, added = Records(), Journal("key")
    added.add(LOADING, 1)
    added.add(LOADED, 2)
    await run(added, records)
    assert records.written == [("key", LOADING, 1), ("key", LOADED, 2)]


async def test_a_database_that_was_away_gets_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "FIRST_RETRY_S", 0.001)
    records, added = Records(n_failures=3), Journal("key")
    added.add(LOADING, 1)
    added.add(LOADED, 2)
    await run(added, records)
    assert [at for _, _, at in records.written] == [1, 2]


async def test_too_many_waiting_are_dropped_and_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(journal, "MAX_PENDING", 2)
    records, added = Records(), Journal("key")
    for at in range(3):
        added.add(LOADING, at)
    await run(added, records)
    assert len(records.written) == 2
    assert "history_dropped" in caplog.text


async def test_flushing_without_a_database_ends(caplog: pytest.LogCaptureFixture) -> None:
    added = Journal("key")
    added.add(LOADING, 1)
    await added.flush(0.01)
    assert "history_unwritten" in caplog.text


@pytest.mark.parametrize(
    ("added", "written"),
    [
        ([LOADED, LOST, STOPPED], [LOADED, STOPPED]),
        ([LOADED, LOST, LOADING], [LOADED, LOST, LOADING]),
        ([LOADED, LOST], [LOADED, LOST]),
        ([LOST, LOST], [LOST, LOST]),
    ],
    ids=["stopped", "restarted", "flushed", "twice"],
)
async def test_an_engine_that_goes_because_all_is_stopped_was_not_lost(
    added: list[Verdict], written: list[Verdict]
) -> None:
    records, journal_ = Records(), Journal("key")
    for at, verdict in enumerate(added):
        journal_.add(verdict, at)
    await run(journal_, records)
    assert [verdict for _, verdict, _ in records.written] == written


async def test_a_loss_is_written_though_nothing_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "HOLD_S", 0.001)
    was_written = asyncio.Event()

    class Telling(Records):
        async def record(self, key: str, verdict: Verdict, at_ms: int) -> bool:
            was_written.set()
            return await super().record(key, verdict, at_ms)

    records, journal_ = Telling(), Journal("key")
    writing = asyncio.create_task(journal_.run(records))
    journal_.add(LOST, 7)
    async with asyncio.timeout(5):
        await was_written.wait()
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)
    assert [at for _, _, at in records.written] == [7]
