"""SIGTERM: running work ends within the grace time or is handed over; a rolling restart loses nothing."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from itertools import count

import pytest

from schemas.events import Released
from tests.support.drill import LEASE_S, LONG, Drill, begun, drill, simulated_fleet, text_of
from tests.support.fleet import Fleet
from tests.support.readers import Answer

BEYOND_GRACE = 640
"""Tokens that take longer than the 5 s which services have to end."""


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with simulated_fleet(tmp_path_factory.mktemp("drain")) as running:
        yield running


@pytest.fixture
async def both(fleet: Fleet) -> AsyncIterator[Drill]:
    async with drill(fleet, "e0", "e1") as made:
        yield made


async def test_a_drained_engine_ends_short_work_and_hands_over_the_rest(both: Drill) -> None:
    """The others go on at once, without waiting for the lease."""
    readers = [both.reader() for _ in range(2)]
    asking = [both.ask(r, n_predict=n) for r, n in zip(readers, (120, BEYOND_GRACE), strict=True)]
    for a_reader in readers:
        await begun(a_reader)
    owners = [await both.owner(a_reader) for a_reader in readers]
    assert await asyncio.to_thread(owners[1].stop) == 0
    short, long = await asyncio.gather(*asking)
    await both.check(short, n_attempts=1)
    events = await both.check(long, n_attempts=2)
    assert [event.reason for event in events if isinstance(event, Released)] == ["drain"]
    assert long.longest_pause_s < LEASE_S / 2
    assert text_of(long).startswith(await both.undisturbed())


async def test_a_drained_gateway_ends_its_answers(both: Drill) -> None:
    """Who is in gets the rest; who needs longer resumes at another one."""
    short, long = both.reader(), both.reader()
    asking = [both.ask(short), both.ask(long, n_predict=BEYOND_GRACE)]
    await begun(short)
    await begun(long)
    stopping = asyncio.create_task(asyncio.to_thread(both.fleet["g0"].stop))
    answers = await asyncio.gather(*asking)
    assert await stopping == 0
    assert [answer.n_resumes > 0 for answer in answers] == [False, True]
    for answer in answers:
        await both.check(answer)


async def test_a_rolling_restart_of_everything_loses_nothing(both: Drill) -> None:
    expected = await both.undisturbed()
    is_over = asyncio.Event()
    loads = [asyncio.create_task(load(both, n, is_over)) for n in range(3)]
    for name in ("e0", "e1", "g0", "g1", "s0", "m0"):
        service = both.fleet[name]
        assert await asyncio.to_thread(service.stop) == 0, service.stderr()
        service.start()
        await asyncio.to_thread(both.fleet.wait_ready, 2)
    is_over.set()
    answers = [answer for some in await asyncio.gather(*loads) for answer in some]
    assert len(answers) > 6
    for answer in answers:
        assert text_of(answer) == expected
        await both.check(answer)


async def load(a_drill: Drill, n: int, is_over: asyncio.Event) -> list[Answer]:
    """One request after the other; what is refused (503) is asked again, as clients' libraries do."""
    answers: list[Answer] = []
    turns = count(n)
    while not is_over.is_set():
        answer = await a_drill.reader(f"g{next(turns) % 2}").ask("/completion", LONG)
        if answer.is_accepted:
            answers.append(answer)
        else:
            assert answer.status in (0, 503), answer
            await asyncio.sleep(0.2)
    return answers
