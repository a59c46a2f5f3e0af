"""Processes that die or stop in the middle of answers: clients notice a pause and nothing else."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest

from services.bus.log import read_generation
from tests.support.drill import LEASE_S, Drill, begun, drill, simulated_fleet, text_of
from tests.support.fleet import Fleet
from tests.support.gateway import frames_of
from tests.support.logs import ended, until


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with simulated_fleet(tmp_path_factory.mktemp("failover"), timeout_s=15) as running:
        yield running


@pytest.fixture
async def alone(fleet: Fleet) -> AsyncIterator[Drill]:
    """With one engine."""
    async with drill(fleet, "e0") as made:
        yield made


@pytest.fixture
async def both(fleet: Fleet) -> AsyncIterator[Drill]:
    """With two engines."""
    async with drill(fleet, "e0", "e1") as made:
        yield made


async def test_an_engine_that_is_restarted_continues_itself(alone: Drill) -> None:
    a_reader = alone.reader()
    asking = alone.ask(a_reader)
    await begun(a_reader)
    alone.fleet["e0"].kill()
    alone.fleet["e0"].start()
    answer = await asking
    await alone.check(answer, n_attempts=2)
    assert text_of(answer) == await alone.undisturbed()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
async def test_a_decoder_that_dies_or_stops_is_replaced_by_its_front(
    alone: Drill, number: signal.Signals
) -> None:
    a_reader = alone.reader()
    asking = alone.ask(a_reader)
    await begun(a_reader)
    os.kill(alone.fleet["e0"].session.one("decoder"), number)
    answer = await asking
    await alone.check(answer, n_attempts=2)
    assert text_of(answer) == await alone.undisturbed()


async def test_requests_are_taken_while_the_decoder_comes_back(alone: Drill) -> None:
    os.kill(alone.fleet["e0"].session.one("decoder"), signal.SIGKILL)
    assert await alone.undisturbed()


async def test_when_no_engine_ever_comes_back(alone: Drill) -> None:
    """Who has no headers yet gets 503, who has them an error in the stream; and what nobody reads,
    since its gateway died, ends too."""
    running = [alone.reader() for _ in range(4)]
    asking = [alone.ask(each, n_predict=9999) for each in running]
    for a_reader in running:
        await begun(a_reader, 500)
    known = await alone.generation_ids()
    unread = asyncio.create_task(
        alone.http.post(alone.url("g1", "/completion"), json={"prompt": "x"})
    )
    asking.append(alone.ask(alone.reader()))
    orphans = await alone.new_ids(known, 2)
    alone.fleet["e0"].kill()
    alone.fleet["g1"].kill()
    with pytest.raises(httpx.TransportError):
        await unread
    *answers, refused = await asyncio.gather(*asking)
    assert (refused.status, refused.headers["retry-after"]) == (503, "1")
    for answer in answers:
        assert '"code":503' in frames_of(answer.body.decode())[-1]
    await alone.no_task_is_left()
    for generation_id in orphans:
        assert (await read_generation(alone.bus, generation_id)).is_closed


@pytest.mark.parametrize("n_cmpl", [1, 2])
async def test_another_engine_continues_what_a_killed_one_left(both: Drill, n_cmpl: int) -> None:
    a_reader = both.reader()
    asking = both.ask(a_reader, n_cmpl=n_cmpl)
    await begun(a_reader)
    (await both.owner(a_reader)).kill()
    answer = await asking
    assert answer.n_resumes == 0, "the client noticed only a pause"
    assert LEASE_S / 2 < answer.longest_pause_s < LEASE_S * 3
    await both.check(answer, n_attempts=2)
    assert text_of(answer) == await both.undisturbed()


async def test_an_engine_that_slept_finds_that_it_was_replaced(both: Drill) -> None:
    """Front and decoder are stopped; another engine takes over; awake again this one drops the slot."""
    a_reader = both.reader()
    asking = both.ask(a_reader)
    await begun(a_reader)
    sleeper = await both.owner(a_reader)
    pids = [sleeper.session.process.pid, sleeper.session.one("decoder")]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        await until(both.bus, a_reader.answer.headers["x-generation-id"], lambda s: s.attempt == 2)
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    answer = await asking
    await both.check(answer, n_attempts=2)
    assert text_of(answer) == await both.undisturbed()
    await both.no_slot_is_busy()
    assert "action=run_fenced" in sleeper.stderr()


async def test_a_question_to_a_stopped_engine_is_asked_again(both: Drill) -> None:
    """Requests that come while one of two engines hangs are answered by the other one."""
    both.fleet["e0"].send(signal.SIGSTOP)
    try:
        began = time.monotonic()
        short = {"prompt": "x", "n_predict": 3}
        url = both.url("g0", "/completion")
        answers = await asyncio.gather(*(both.http.post(url, json=short) for _ in range(6)))
        assert {answer.status_code for answer in answers} == {200}
        assert time.monotonic() - began < LEASE_S * 3 + 5
    finally:
        both.fleet["e0"].send(signal.SIGCONT)


async def test_a_killed_gateway_is_resumed_at_another(both: Drill) -> None:
    a_reader = both.reader()
    asking = both.ask(a_reader)
    await begun(a_reader)
    both.fleet["g0"].kill()
    answer = await asking
    assert answer.n_resumes > 0
    await ended(both.bus, answer.headers["x-generation-id"])
    await both.check(answer, n_attempts=1)
