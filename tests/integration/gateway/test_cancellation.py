"""Who writes first decides: an engine that grows a log and a gateway that ends it."""

import asyncio

import pytest

from schemas.errors import Problem
from schemas.events import Cancelled, Failed, Finished, Usage
from schemas.generation import Generation
from services.bus.connection import Bus
from services.bus.errors import Fenced, LogClosed
from services.bus.log import LogWriter, read_generation, read_log
from services.bus.tasks import on_poke
from services.gateway.cancellation import Canceller
from tests.support import events

FINISHED = Finished(usage=Usage(n_prompt=3, n_predicted=1))


@pytest.fixture
def ender(bus: Bus) -> Canceller:
    return Canceller(bus, LogWriter(bus), events.MODEL_KEY)


async def opened(bus: Bus, generation_id: str) -> Generation:
    return await LogWriter(bus).append(Generation(), generation_id, events.requested(generation_id))


async def test_a_cancel_wins_against_a_fast_engine(bus: Bus, ender: Canceller) -> None:
    generation_id = events.new_id()
    state = await opened(bus, generation_id)
    poked = asyncio.Event()
    await on_poke(bus, events.MODEL_KEY, lambda _: poked.set())

    async def grow(state: Generation) -> int:
        writer, n = LogWriter(bus), 0
        while True:
            try:
                state = await writer.append(state, generation_id, events.token(n))
            except (Fenced, LogClosed):
                return n
            n += 1

    growing = asyncio.create_task(grow(state))
    assert await ender.cancel(generation_id, "client_gone", state=state)
    n_tokens = await growing
    await asyncio.wait_for(poked.wait(), 5)
    end = await read_generation(bus, generation_id)
    assert isinstance(end.end, Cancelled)
    assert end.n_tokens.get(0, 0) == n_tokens
    assert end.n_ignored == 0


async def test_a_cancel_that_comes_too_late_changes_nothing(bus: Bus, ender: Canceller) -> None:
    generation_id = events.new_id()
    state = await opened(bus, generation_id)
    done = await LogWriter(bus).append(state, generation_id, events.token(0), FINISHED)
    assert not await ender.cancel(generation_id, "client_gone", state=state)
    assert not await ender.cancel(generation_id, "client_gone", state=done)
    assert not await ender.cancel(generation_id, "replaced")
    assert (await read_log(bus, generation_id))[-1].events[-1] == FINISHED


async def test_of_many_that_end_a_log_one_does(bus: Bus, ender: Canceller) -> None:
    generation_id = events.new_id()
    await opened(bus, generation_id)
    ends = [ender.cancel(generation_id, f"stopped {n}") for n in range(5)]
    assert sum(await asyncio.gather(*ends)) == 1
    assert len(await read_log(bus, generation_id)) == 2


async def test_a_log_that_was_never_opened_can_be_ended(bus: Bus, ender: Canceller) -> None:
    generation_id = events.new_id()
    problem = Problem(code="server_error", message="no")
    assert await ender.fail(generation_id, problem)
    with pytest.raises(Fenced):
        await opened(bus, generation_id)
    state = await read_generation(bus, generation_id)
    assert isinstance(state.end, Failed)
    assert state.end.problem == problem
