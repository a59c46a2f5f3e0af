"""The sweep over the work queue: what is overdue ends, and nothing else is touched or read."""

import pytest

from schemas.events import Failed
from schemas.tasks import Task
from services.bus.errors import BusUnavailable
from services.bus.open_tasks import OpenTask
from services.streams.sweep import MARGIN_MS, NEVER_OPENED, Sweep
from tests.golden.cases import CASES, CREATED_AT_MS, GENERATION_ID
from tests.support.fake_logs import FakeLogs

CASE = CASES["simple.openai.chat"]
ID = GENERATION_ID
DUE_MS = CREATED_AT_MS + 60_000 + MARGIN_MS


class FakeQueue:
    """Tasks by sequence."""

    def __init__(self, *tasks: Task) -> None:
        self.tasks = {seq: OpenTask(seq, "k", task) for seq, task in enumerate(tasks, 1)}

    async def open_tasks(self) -> list[OpenTask]:
        return list(self.tasks.values())

    async def remove(self, seq: int) -> None:
        del self.tasks[seq]


def task(generation_id: str = ID, **changes: int) -> Task:
    times = {"created_at_ms": CREATED_AT_MS, "deadline_at_ms": CREATED_AT_MS + 60_000, **changes}
    return Task(generation_id=generation_id, **times)


async def sweep(queue: FakeQueue, logs: FakeLogs, now_ms: int = DUE_MS) -> None:
    await Sweep(queue, logs, logs, now_ms=lambda: now_ms).once()


@pytest.fixture
def logs() -> FakeLogs:
    return FakeLogs()


@pytest.mark.parametrize("n_events", [1, 4], ids=["queued", "running"])
async def test_an_overdue_generation_fails(logs: FakeLogs, n_events: int) -> None:
    logs.write(ID, *CASE[:n_events])
    queue = FakeQueue(task())
    await sweep(queue, logs)
    (end,) = logs.entries(ID)[-1].events
    assert isinstance(end, Failed)
    assert (end.problem.status, end.problem.retry_after_s) == (503, 1)
    assert queue.tasks == {}
    assert logs.pokes == [("k", ID)]


async def test_what_has_time_left_is_not_even_read(logs: FakeLogs) -> None:
    logs.write(ID, *CASE[:4])
    queue = FakeQueue(task(), task(deadline_at_ms=0))
    await sweep(queue, logs, DUE_MS - 1)
    assert logs.reads == []
    assert list(queue.tasks) == [1, 2]


async def test_a_closed_log_only_loses_its_task(logs: FakeLogs) -> None:
    logs.write(ID, *CASE)
    queue = FakeQueue(task())
    await sweep(queue, logs)
    assert len(logs.entries(ID)) == 1
    assert queue.tasks == {}


async def test_a_log_that_was_never_opened_is_closed(logs: FakeLogs) -> None:
    queue = FakeQueue(task())
    await sweep(queue, logs)
    (end,) = logs.entries(ID)[-1].events
    assert isinstance(end, Failed)
    assert end.problem.message == NEVER_OPENED
    assert queue.tasks == {}


async def test_a_short_deadline_leaves_the_gateway_its_time_to_open(logs: FakeLogs) -> None:
    queue = FakeQueue(task(deadline_at_ms=CREATED_AT_MS + 1, accept_s=30))
    await sweep(queue, logs, CREATED_AT_MS + 30_000)
    assert logs.entries(ID) == []
    assert list(queue.tasks) == [1]


async def test_a_gateway_that_comes_at_this_moment_keeps_its_task(logs: FakeLogs) -> None:
    logs.before_append = lambda: logs.write(ID, CASE[0]) and None
    queue = FakeQueue(task(), task("later"))
    await sweep(queue, logs)
    assert list(queue.tasks) == [1], "the next look ends it"
    await sweep(queue, logs)
    assert isinstance(logs.entries(ID)[-1].events[0], Failed)


async def test_a_broker_that_is_away_ends_the_look(logs: FakeLogs) -> None:
    class Away(FakeQueue):
        async def remove(self, seq: int) -> None:
            raise BusUnavailable("away")

    logs.write(ID, *CASE)
    with pytest.raises(BusUnavailable):
        await sweep(Away(task()), logs)
