"""The runner on a real broker, with a decoder that the test plays: failover, poison, limits."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from schemas import subjects
from schemas.events import Claimed, Failed, Finished, Started, Tokens
from schemas.generation import Generation
from schemas.rpc import EngineQuestion, SlotsDescription
from schemas.tasks import Task
from services.bus.connection import Bus, unsubscribe
from services.bus.errors import Fenced, StoreFull
from services.bus.log import Entry, LogWriter, read_log
from services.bus.rpc import serve
from services.bus.tasks import publish_task
from services.engine import upkeep
from services.engine.gathering import GATHER_S
from tests.support import events
from tests.support.engine_desk import (
    Desk,
    attempts,
    desk,
    log_of,
    new_requested,
    until_empty,
    with_token,
)
from tests.support.logs import ended, until


async def test_a_generation_from_claim_to_end(bus: Bus, model_key: str) -> None:
    async with desk(bus, model_key) as d:
        g = await d.request()
        assert await d.admits(1) == [g]
        d.start(g)
        d.token(g, 0)
        d.token(g, 1)
        d.end(g, 2)
        state = await ended(bus, g)
    assert isinstance(state.end, Finished)
    kinds = [type(event) for event in await log_of(bus, g)]
    assert kinds[1:3] == [Claimed, Started]
    assert kinds[-2:] == [Tokens, Finished]


def entries_of(log: list[Entry]) -> list[int]:
    """How many tokens each entry holds, of those that hold any."""
    counts = [sum(len(e.ids) for e in entry.events if isinstance(e, Tokens)) for entry in log]
    return [count for count in counts if count]


async def test_tokens_that_follow_each_other_at_once_are_stored_together(
    bus: Bus, model_key: str
) -> None:
    async with desk(bus, model_key) as d:
        g = await d.request()
        await d.admits(1)
        d.start(g)
        await with_token(d, g, 0)
        for index in range(1, 60):  # a thousand a second
            d.token(g, index)
            await asyncio.sleep(0.001)
        d.end(g, 60)
        await ended(bus, g)
    counts = entries_of(await read_log(bus, g))
    assert sum(counts) == 60
    assert counts[0] == 1  # the first one waits for nothing
    assert len(counts) < 30


async def test_tokens_at_a_readers_pace_are_stored_one_by_one(bus: Bus, model_key: str) -> None:
    async with desk(bus, model_key) as d:
        g = await d.request()
        await d.admits(1)
        d.start(g)
        for index in range(5):
            await with_token(d, g, index)
            await asyncio.sleep(GATHER_S)
        d.end(g, 5)
        await ended(bus, g)
    assert entries_of(await read_log(bus, g)) == [1] * 5


async def test_what_was_said_before_a_crash_is_kept(bus: Bus, model_key: str) -> None:
    async with desk(bus, model_key) as d:
        g = await d.request()
        await d.admits(1)
        d.start(g)
        d.token(g, 0, "x")
        d.token(g, 1, "y")
        d.crash()
        d.restart()
        (job,) = (await d.decoder.next_admit()).choices
        assert (job.emitted, job.texts, job.seed) == ((7, 7), ("x", "y"), 1)
        d.start(g)
        d.token(g, 2, "z")
        d.end(g, 3)
        await ended(bus, g)
    tokens = [e for e in await log_of(bus, g) if isinstance(e, Tokens)]
    assert "".join("".join(t.texts) for t in tokens) == "xyz"
    assert await attempts(bus, g) == [1, 2]


async def test_a_crash_after_the_last_token_only_needs_an_end(bus: Bus, model_key: str) -> None:
    async with desk(bus, model_key) as d:
        g = await d.request()
        await d.admits(1)
        d.start(g)
        d.token(g, 0)
        d.end(g, 1)
        d.crash()
        d.restart()
        assert isinstance((await ended(bus, g)).end, Finished)
        assert await attempts(bus, g) == [1]


async def play_with_poison(d: Desk, poisons: set[str]) -> None:
    """A decoder that ends whenever it is given one of `poisons`, and brings one token of the others."""
    while True:
        admit = await d.decoder.next_admit()
        if admit.generation_id not in poisons:
            d.start(admit.generation_id)
            d.token(admit.generation_id, len(admit.choices[0].emitted))
            continue
        d.crash()
        while not d.decoder.admitted.empty():
            d.decoder.admitted.get_nowait()
        d.restart()


@pytest.mark.parametrize("n_poisons", [1, 2])
async def test_poisonous_requests_fail_and_nobody_else_does(
    bus: Bus, model_key: str, n_poisons: int
) -> None:
    """Neighbours that generate already, and such whose prompts are still being read."""
    async with desk(bus, model_key, n_slots=8) as d:
        requests = [await d.request() for _ in range(4 + n_poisons)]
        assert set(await d.admits(len(requests))) == set(requests)
        neighbours, poisons = requests[:4], set(requests[4:])
        for g in neighbours[:2]:
            d.start(g)
            await with_token(d, g, 0)
        d.crash()
        d.restart()
        playing = asyncio.create_task(play_with_poison(d, poisons))
        for g in poisons:
            end = (await ended(bus, g)).end
            assert isinstance(end, Failed)
            assert "three times" in end.problem.message
            assert await attempts(bus, g) == [1, 2, 3]
        for g in neighbours:
            state = await until(bus, g, lambda state: state.n_tokens.get(0, 0) > 0)
            assert state.claims_without_token == 0
            d.end(g, state.n_tokens[0])
            assert isinstance((await ended(bus, g)).end, Finished)
        playing.cancel()


async def test_a_request_that_kills_whole_engines_fails_too(bus: Bus, model_key: str) -> None:
    """Claims of earlier engines count; what they left is tried one by one."""
    poison, harmless = events.new_id(), events.new_id()
    writer = LogWriter(bus)
    async with desk(bus, model_key) as d:
        for g, n_claims in ((harmless, 1), (poison, 2)):
            requested = new_requested(g, model_key)
            claims = [events.claimed(n + 1, "gone") for n in range(n_claims)]
            await writer.append(Generation(), g, requested, *claims)
            await publish_task(bus, model_key, Task(generation_id=g))
        playing = asyncio.create_task(play_with_poison(d, {poison}))
        assert isinstance((await ended(bus, poison)).end, Failed)
        await until(bus, harmless, lambda state: state.n_tokens.get(0, 0) > 0)
        playing.cancel()


async def test_what_a_dead_engine_left_goes_on_at_once(bus: Bus, model_key: str) -> None:
    """The broker knows that the owner is gone: no need to watch its log for a lease."""
    requested = new_requested(events.new_id(), model_key)
    g = requested.generation_id
    await LogWriter(bus).append(
        Generation(), g, requested, events.claimed(1, "gone"), events.token(0)
    )
    async with desk(bus, model_key) as d:
        await publish_task(bus, model_key, Task(generation_id=g))
        async with asyncio.timeout(bus.settings.lease_s * 0.8):
            assert await d.admits(1) == [g]


async def test_a_silent_owner_is_watched_for_a_lease(bus: Bus, model_key: str) -> None:
    async def sleep(_question: object) -> SlotsDescription:
        await asyncio.sleep(60)
        raise AssertionError

    requested = new_requested(events.new_id(), model_key)
    g = requested.generation_id
    await LogWriter(bus).append(Generation(), g, requested, events.claimed(1, "stopped"))
    owner = await serve(bus, subjects.engine_rpc(model_key, "stopped"), EngineQuestion, sleep)
    async with desk(bus, model_key) as d:
        began = time.monotonic()
        await publish_task(bus, model_key, Task(generation_id=g))
        assert await d.admits(1) == [g]
        assert time.monotonic() - began >= bus.settings.lease_s
    await unsubscribe(owner)


async def test_a_deadline_ends_a_run_that_nobody_reads(bus: Bus, model_key: str) -> None:
    async with desk(bus, model_key) as d:
        soon_ms = time.time_ns() // 1_000_000 + 800
        g = await d.request(deadline_at_ms=soon_ms)
        await d.admits(1)
        d.start(g)
        d.token(g, 0)
        end = (await ended(bus, g)).end
        assert isinstance(end, Failed)
        assert end.problem.status == 503
        assert await asyncio.wait_for(d.decoder.cancelled.get(), 5) == g


async def test_what_fits_into_no_entry_becomes_several(
    bus: Bus, model_key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after an outage: much has come, and one message cannot hold it."""
    async with desk(bus, model_key) as d:
        g = await d.request()
        await d.admits(1)
        d.start(g)
        await with_token(d, g, 0)
        monkeypatch.setattr(Bus, "max_message_bytes", 700)
        for n in range(1, 40):
            d.token(g, n, f"{n:050}")
        d.end(g, 40)
        state = await ended(bus, g)
    assert isinstance(state.end, Finished)
    assert (state.n_tokens, state.n_ignored) == ({0: 40}, 0)
    texts = [t for e in await log_of(bus, g) if isinstance(e, Tokens) for t in e.texts]
    assert texts[1:] == [f"{n:050}" for n in range(1, 40)]


async def test_a_token_that_fits_into_no_entry_fails_alone(
    bus: Bus, model_key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with desk(bus, model_key) as d:
        g = await d.request()
        await d.admits(1)
        d.start(g)
        await with_token(d, g, 0)
        monkeypatch.setattr(Bus, "max_message_bytes", 700)
        d.token(g, 1, "x" * 1000)
        end = (await ended(bus, g)).end
        assert isinstance(end, Failed)
        assert "larger than the log keeps" in end.problem.message
        assert await asyncio.wait_for(d.decoder.cancelled.get(), 5) == g


async def test_a_gateway_that_comes_too_late_loses_its_append(bus: Bus, model_key: str) -> None:
    """Its task was there, its log was not: the engine closed it, and that is the answer."""
    g = events.new_id()
    async with desk(bus, model_key) as d:
        created_at_ms = time.time_ns() // 1_000_000
        task = Task(generation_id=g, created_at_ms=created_at_ms, accept_s=1)
        await publish_task(bus, model_key, task)
        end = (await ended(bus, g)).end
        assert isinstance(end, Failed)
        assert time.time_ns() // 1_000_000 - created_at_ms >= 1000
        with pytest.raises(Fenced):
            await LogWriter(bus).append(Generation(), g, new_requested(g, model_key))
        await until_empty(bus, model_key)
        assert d.decoder.admitted.empty()


async def test_a_broker_that_takes_nothing_makes_the_decoder_wait(
    bus: Bus, model_key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "MAX_UNSENT_TOKENS", 10)
    async with desk(bus, model_key) as d:
        g = await d.request()
        await d.admits(1)
        d.start(g)
        await with_token(d, g, 0)
        full = FullStore(d.runner._writer.append)
        d.runner._runs[g]._writer = full  # type: ignore[assignment]
        d.token(g, 1)
        await asyncio.wait_for(full.asked.wait(), 5)
        for n in range(29):
            d.token(g, 2 + n)
        await asyncio.wait_for(d.decoder.paused.wait(), 5)
        full.has_room = True
        await asyncio.wait_for(d.decoder.resumed.wait(), 5)
        d.end(g, 31)
        assert (await ended(bus, g)).n_tokens == {0: 31}


class FullStore:
    """A writer whose store is full until it has room again."""

    def __init__(self, append: Callable[..., Awaitable[Generation]]) -> None:
        self._append = append
        self.has_room = False
        self.asked = asyncio.Event()

    async def append(self, *args: object) -> Generation:
        self.asked.set()
        if not self.has_room:
            raise StoreFull("no room")
        return await self._append(*args)
