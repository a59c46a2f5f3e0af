"""Who waits in which lane, and when a request counts no more."""

from schemas.lanes import BATCH, BATCH_CLASS, BUSY, FLOODING, INTERACTIVE_CLASS, LIGHT
from services.gateway.loads import UNSEEN_S, CallerLoads, Load
from services.streams.config import StreamsSettings
from services.streams.hub import Hub
from tests.golden.cases import CASES, GENERATION_ID
from tests.support.fake_logs import FakeLogs

CASE = CASES["simple.openai.chat"]


class Bench:
    """Loads over logs in memory, with a clock that the test sets."""

    def __init__(self) -> None:
        self.now = 0.0
        self.logs = FakeLogs()
        self.hub = Hub(self.logs, StreamsSettings(linger_s=0.0))
        self.loads = CallerLoads(self.hub, clock=lambda: self.now)

    def enter(self, caller: str, n: int, priority: str = INTERACTIVE_CLASS) -> list[Load]:
        return [self.loads.enter(caller, priority) for _ in range(n)]


def test_a_flood_slows_down_its_caller_only() -> None:
    bench = Bench()
    lanes = [load.lane for load in bench.enter("x", 40)]
    assert lanes == [LIGHT] * 4 + [BUSY] * 28 + [FLOODING] * 8
    assert [load.lane for load in bench.enter("y", 2)] == [LIGHT] * 2


def test_nobody_is_slowed_down_where_nobody_is_known() -> None:
    assert {load.lane for load in Bench().enter("", 100)} == {LIGHT}


def test_batch_is_a_lane_of_its_own() -> None:
    bench = Bench()
    assert {load.lane for load in bench.enter("x", 10, BATCH_CLASS)} == {BATCH}
    assert {load.lane for load in bench.enter("", 2, BATCH_CLASS)} == {BATCH}


def test_who_has_less_comes_back() -> None:
    bench = Bench()
    held = bench.enter("x", 40)
    for load in held[2:]:
        bench.loads.leave(load)
        bench.loads.leave(load)  # once is enough
    assert bench.loads.n_unfinished("x") == 2
    assert bench.enter("x", 1)[0].lane == BUSY
    for load in held[:2]:
        bench.loads.leave(load)
    assert bench.enter("x", 1)[0].lane == LIGHT


def test_nothing_is_kept_of_callers_without_requests() -> None:
    bench = Bench()
    for load in bench.enter("x", 5):
        bench.loads.leave(load)
    assert bench.loads.n_unfinished("x") == 0
    assert bench.enter("x", 1)[0].lane == LIGHT


def test_one_generation_counts_once() -> None:
    """Two requests under one idempotency key."""
    bench = Bench()
    first, second = bench.enter("x", 2)
    bench.loads.keep(first, "g")
    bench.loads.keep(second, "g")
    assert bench.loads.n_unfinished("x") == 1
    bench.loads.leave(second)
    assert bench.loads.n_unfinished("x") == 1
    bench.loads.leave(first)
    assert bench.loads.n_unfinished("x") == 0


async def test_it_counts_until_its_log_ends() -> None:
    bench = Bench()
    (load,) = bench.enter("x", 1)
    bench.loads.keep(load, GENERATION_ID)
    bench.logs.write(GENERATION_ID, *CASE[:-1])
    with await bench.hub.open(GENERATION_ID):
        assert bench.loads.n_unfinished("x") == 1
        bench.logs.write(GENERATION_ID, CASE[-1])
        assert bench.loads.n_unfinished("x") == 0
    await bench.hub.close()


async def test_an_end_that_nobody_here_saw_is_looked_up() -> None:
    bench = Bench()
    (load,) = bench.enter("x", 1)
    bench.loads.keep(load, GENERATION_ID)
    bench.logs.write(GENERATION_ID, *CASE)
    await bench.loads.check()
    assert bench.loads.n_unfinished("x") == 1, "too early to look"
    bench.now = UNSEEN_S
    await bench.loads.check()
    assert bench.loads.n_unfinished("x") == 0


async def test_what_still_runs_counts_though_nobody_follows_it() -> None:
    bench = Bench()
    (load,) = bench.enter("x", 1)
    bench.loads.keep(load, GENERATION_ID)
    bench.logs.write(GENERATION_ID, *CASE[:-1])
    bench.now = UNSEEN_S
    await bench.loads.check()
    assert bench.loads.n_unfinished("x") == 1
