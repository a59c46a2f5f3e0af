"""Races on one log, each order driven: cancels, ends, other engines, a drain. A decoder that the test plays."""

import asyncio

import pytest

from schemas.events import Finished, Released
from schemas.generation import Generation
from services.bus.connection import Bus
from services.bus.errors import LogClosed
from services.bus.log import LogWriter
from services.bus.tasks import poke
from tests.support import events
from tests.support.engine_desk import (
    attempts,
    cancel,
    desk,
    log_of,
    state_of,
    until_empty,
    with_token,
)
from tests.support.logs import ended, until


async def test_a_cancel_before_the_claim(bus: Bus, model_key: str) -> None:
    """A queued task that was cancelled never runs."""
    async with desk(bus, model_key, n_slots=1) as d:
        first = await d.request()
        await d.admits(1)
        queued = await d.request()
        await cancel(bus, queued)
        d.start(first)
        d.token(first, 0)
        d.end(first, 1)
        await ended(bus, first)
        last = await d.request()
        assert await d.admits(1) == [last]
        assert await attempts(bus, queued) == []


async def test_a_cancel_between_look_and_claim(bus: Bus, model_key: str) -> None:
    """The claim meets the fence, and the task goes."""
    async with desk(bus, model_key) as d:
        claim = d.runner._claims.claim

        async def late_claim(state: Generation, generation_id: str) -> Generation:
            await cancel(bus, generation_id)
            return await claim(state, generation_id)

        d.runner._claims.claim = late_claim  # type: ignore[method-assign]
        g = await d.request()
        await ended(bus, g)
        await until_empty(bus, model_key)
        assert d.decoder.admitted.empty()
        assert await attempts(bus, g) == []


async def test_a_cancel_between_claim_and_run(bus: Bus, model_key: str) -> None:
    """Its poke comes while the claim's acknowledgement is on its way: nothing else would tell the
    engine, since a generation that waits for its slot appends nothing."""
    async with desk(bus, model_key) as d:
        claim = d.runner._claims.claim

        async def slow_claim(state: Generation, generation_id: str) -> Generation:
            after = await claim(state, generation_id)
            await cancel(bus, generation_id)
            d.runner.on_poke(generation_id)
            return after

        d.runner._claims.claim = slow_claim  # type: ignore[method-assign]
        g = await d.request()
        assert await asyncio.wait_for(d.decoder.cancelled.get(), 5) == g
        await until_empty(bus, model_key)
        assert d.runner.runs == {}


@pytest.mark.parametrize("is_poked", [True, False])
async def test_a_cancel_of_a_running_generation(bus: Bus, model_key: str, is_poked: bool) -> None:
    """With the poke at once, without it at the next token."""
    async with desk(bus, model_key) as d:
        g, other = await d.request(), await d.request()
        await d.admits(2)
        d.start(g)
        await with_token(d, g, 0)
        await cancel(bus, g)
        if is_poked:
            await poke(bus, model_key, g)
        else:
            d.token(g, 1)
        assert await asyncio.wait_for(d.decoder.cancelled.get(), 5) == g
        d.token(g, 2)
        assert list(d.runner.runs) == [other]
        assert (await state_of(bus, g)).n_tokens == {0: 1}


async def test_a_finish_before_the_cancel(bus: Bus, model_key: str) -> None:
    async with desk(bus, model_key) as d:
        g = await d.request()
        await d.admits(1)
        d.start(g)
        d.token(g, 0)
        d.end(g, 1)
        await ended(bus, g)
        with pytest.raises(LogClosed):
            await cancel(bus, g)
        await poke(bus, model_key, g)
        await until_empty(bus, model_key)


async def test_an_engine_that_slept_loses_its_append(bus: Bus, model_key: str) -> None:
    """Another one took over; it drops the slot and leaves the task alone."""
    async with desk(bus, model_key) as sleeper:
        g = await sleeper.request()
        await sleeper.admits(1)
        sleeper.start(g)
        state = await with_token(sleeper, g, 0)
        other = await LogWriter(bus).append(state, g, events.claimed(2, "other"))
        sleeper.token(g, 1)
        assert await asyncio.wait_for(sleeper.decoder.cancelled.get(), 5) == g
        assert sleeper.runner.runs == {}
        assert (await state_of(bus, g)).last_seq == other.last_seq


async def test_a_drain_lets_runs_end_and_gives_back_the_rest(bus: Bus, model_key: str) -> None:
    async with desk(bus, model_key, "first") as first:
        quick, slow = await first.request(), await first.request()
        await first.admits(2)
        for g in (quick, slow):
            first.start(g)
            await with_token(first, g, 0)
        first.runner.stop_taking()
        draining = asyncio.create_task(first.runner.drain(0.5))
        first.end(quick, 1)
        assert isinstance((await ended(bus, quick)).end, Finished)
        await until(bus, slow, lambda state: state.engine is None)
        await draining
        first.token(slow, 1)
        async with desk(bus, model_key, "second") as second:
            (job,) = (await second.decoder.next_admit()).choices
            assert job.emitted == (7,)
            second.start(slow)
            second.token(slow, 1)
            second.end(slow, 2)
            assert isinstance((await ended(bus, slow)).end, Finished)
    kinds = [type(event) for event in await log_of(bus, slow)]
    assert Released in kinds
    assert await attempts(bus, slow) == [1, 2]
