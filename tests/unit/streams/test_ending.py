"""Ending logs from the read side, and deadlines."""

import pytest

from schemas.events import Cancelled, Failed
from services.bus.errors import BusUnavailable
from services.bus.log import Entry
from services.streams.config import StreamsSettings
from services.streams.deadline import Deadlines
from services.streams.ending import LogEnder
from services.streams.hub import Hub
from tests.golden.cases import CASES, CREATED_AT_MS, GENERATION_ID, token
from tests.support.fake_logs import FakeLogs

CASE = CASES["simple.openai.chat"]
ID = GENERATION_ID
CANCELLED = Cancelled(by="streams", reason="deleted")
DEADLINE_MS = CREATED_AT_MS + 60_000


@pytest.fixture
def logs() -> FakeLogs:
    return FakeLogs()


async def test_a_running_log_is_closed_and_the_engine_poked(logs: FakeLogs) -> None:
    logs.write(ID, *CASE[:4])
    assert await LogEnder(logs, logs).end(ID, CANCELLED)
    assert logs.entries(ID)[-1].events == (CANCELLED,)
    assert logs.pokes == [("k", ID)]


async def test_an_engine_that_is_first_does_not_save_it(logs: FakeLogs) -> None:
    logs.write(ID, *CASE[:4])
    logs.before_append = lambda: logs.write(ID, token(1)) and None
    assert await LogEnder(logs, logs).end(ID, CANCELLED)
    assert [entry.events[-1] for entry in logs.entries(ID)[1:]] == [token(1), CANCELLED]
    assert len(logs.reads) == 1, "after a lost append only the last entry is read"


async def test_a_log_that_ends_meanwhile_stays_as_it_is(logs: FakeLogs) -> None:
    logs.write(ID, *CASE[:5])
    logs.before_append = lambda: logs.write(ID, *CASE[5:]) and None
    assert not await LogEnder(logs, logs).end(ID, CANCELLED)
    assert logs.entries(ID)[-1].events == tuple(CASE[5:])
    assert logs.pokes == []


async def test_a_closed_or_empty_log_is_left_alone(logs: FakeLogs) -> None:
    logs.write(ID, *CASE)
    assert not await LogEnder(logs, logs).end(ID, CANCELLED)
    assert not await LogEnder(logs, logs).end("another", CANCELLED)
    assert logs.entries("another") == []
    assert len(logs.entries(ID)) == 1


class Clock:
    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms


def watched(logs: FakeLogs, clock: Clock, sweep_s: float = 3600) -> tuple[Hub, Deadlines]:
    hub = Hub(logs, StreamsSettings())
    deadlines = Deadlines(hub, LogEnder(logs, logs), now_ms=clock, sweep_s=sweep_s)
    hub.when_opened(deadlines.watch)
    return hub, deadlines


async def test_a_reader_past_the_deadline_ends_the_generation(logs: FakeLogs) -> None:
    logs.write(ID, *CASE[:4])
    clock = Clock(DEADLINE_MS - 1)
    hub, deadlines = watched(logs, clock)
    tape = await hub.open(ID)
    deadlines.sweep()
    assert len(logs.entries(ID)) == 1
    clock.now_ms += 1
    deadlines.sweep()
    deadlines.sweep()
    await tape.wait_done()
    end = tape.generation.end
    assert isinstance(end, Failed)
    assert (end.by, end.problem.status) == ("streams", 503)
    tape.release()
    await hub.close()
    assert len(logs.entries(ID)) == 2


async def test_it_looks_by_itself(logs: FakeLogs) -> None:
    logs.write(ID, *CASE[:4])
    hub, _ = watched(logs, Clock(DEADLINE_MS), sweep_s=0.0)
    tape = await hub.open(ID)
    await tape.wait_done()
    tape.release()
    await hub.close()


async def test_without_readers_nobody_ends_it(logs: FakeLogs) -> None:
    logs.write(ID, *CASE[:4])
    hub, deadlines = watched(logs, Clock(DEADLINE_MS))
    (await hub.open(ID)).release()
    deadlines.sweep()
    await hub.close()
    assert len(logs.entries(ID)) == 1


async def test_a_broker_that_is_away_is_tried_again() -> None:
    flaky = FlakyLogs()
    flaky.write(ID, *CASE[:4])
    hub, _ = watched(flaky, Clock(DEADLINE_MS), sweep_s=0.0)
    tape = await hub.open(ID)
    await tape.wait_done()
    assert flaky.n_failures == 0
    tape.release()
    await hub.close()


class FlakyLogs(FakeLogs):
    """Cannot be read the first times."""

    n_failures = 3

    async def read(self, generation_id: str, after_seq: int = 0) -> list[Entry]:
        if self.n_failures:
            self.n_failures -= 1
            raise BusUnavailable("away")
        return await super().read(generation_id, after_seq)
