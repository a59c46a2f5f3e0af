"""A prompt that is decoded before its log is open: the log is as if it had come after."""

from schemas.events import Claimed, Event, Requested, Started, Tokens
from schemas.generation import Generation
from services.bus.connection import Bus
from services.bus.tasks import poke
from services.engine.protocol import Dropped
from tests.support import events
from tests.support.engine_desk import Desk, desk, log_of
from tests.support.logs import ended, until

N_SLOTS = 2


def kinds(log: list[Event]) -> list[type]:
    return [type(event) for event in log]


def texts(log: list[Event]) -> str:
    return "".join(t for event in log if isinstance(event, Tokens) for t in event.texts)


async def finish(d: Desk, g: str, n_predicted: int) -> list[Event]:
    d.end(g, n_predicted)
    await ended(d.bus, g)
    return await log_of(d.bus, g)


async def test_what_was_said_before_the_claim_comes_after_it(bus: Bus, model_key: str) -> None:
    async with desk(bus, model_key, n_slots=N_SLOTS) as d:
        g = events.new_id()
        await d.prepare(g)
        assert await d.admits(1) == [g]
        d.start(g)
        d.token(g, 0, "a")
        d.token(g, 1, "b")
        assert await log_of(bus, g) == []
        await d.request(g)
        await until(bus, g, lambda state: state.n_tokens.get(0, 0) == 2)
        d.token(g, 2, "c")
        log = await finish(d, g, 3)
        assert kinds(log)[:3] == [Requested, Claimed, Started]
        assert texts(log) == "abc"
        assert d.decoder.admitted.empty()


async def test_what_the_log_asks_for_is_done_where_it_differs(bus: Bus, model_key: str) -> None:
    async with desk(bus, model_key, n_slots=N_SLOTS) as d:
        g = events.new_id()
        await d.prepare(g, prompts=())
        d.start(g)
        d.token(g, 0, "wrong")
        await d.request(g)
        assert await d.decoder.cancelled.get() == g
        d.token(g, 1, "wrong")
        d.say(Dropped(generation_id=g))
        assert await d.admits(2) == [g, g]
        d.start(g)
        d.token(g, 0, "right")
        assert texts(await finish(d, g, 1)) == "right"


async def test_who_asks_and_does_not_come_is_forgotten(bus: Bus, model_key: str) -> None:
    """As a gateway says it, whose limits refuse what the engine has prepared."""
    async with desk(bus, model_key, n_slots=N_SLOTS) as d:
        g = events.new_id()
        await d.prepare(g)
        await poke(bus, model_key, g)
        assert await d.decoder.cancelled.get() == g
        d.say(Dropped(generation_id=g))
        assert not d.runner.is_busy
        assert await log_of(bus, g) == []


async def test_nothing_begins_early_where_another_engine_may_get_the_task(
    bus: Bus, model_key: str
) -> None:
    async with desk(bus, model_key, n_slots=N_SLOTS) as d:
        d.is_alone = False
        await d.prepare(events.new_id())
        assert not d.runner.is_busy
        assert d.decoder.admitted.empty()


async def test_only_free_slots_are_used(bus: Bus, model_key: str) -> None:
    async with desk(bus, model_key, n_slots=N_SLOTS) as d:
        running = await d.request()
        assert await d.admits(1) == [running]
        ahead, waits = events.new_id(), events.new_id()
        await d.prepare(ahead)
        assert await d.admits(1) == [ahead]
        await d.prepare(waits)
        assert waits not in d.runner.head_starts
        overtaker = await d.request()  # nobody prepared it here
        assert await d.admits(1) == [overtaker]
        assert await d.decoder.cancelled.get() == ahead


async def test_a_question_that_comes_again_begins_nothing_anew(bus: Bus, model_key: str) -> None:
    """A gateway that waits for an answer asks all engines once more."""
    async with desk(bus, model_key, n_slots=N_SLOTS) as d:
        g = events.new_id()
        await d.prepare(g)
        await d.prepare(g)
        await d.request(g)
        d.start(g)
        d.token(g, 0, "a")
        await until(bus, g, lambda state: state.n_tokens.get(0, 0) == 1)
        await d.prepare(g)
        d.token(g, 1, "b")
        assert texts(await finish(d, g, 2)) == "ab"
        assert await d.admits(1) == [g]
        assert d.decoder.admitted.empty()


async def test_who_is_about_to_be_claimed_keeps_its_slot(bus: Bus, model_key: str) -> None:
    async with desk(bus, model_key, n_slots=N_SLOTS) as d:
        ahead = events.new_id()
        await d.prepare(ahead)
        claim, other = d.runner._claims.claim, await d.request()

        async def claim_after_the_other(state: Generation, generation_id: str) -> Generation:
            if generation_id == ahead:
                await until(bus, other, lambda state: state.attempt == 1)
            return await claim(state, generation_id)

        d.runner._claims.claim = claim_after_the_other  # type: ignore[method-assign]
        await d.request(ahead)
        assert await d.admits(2) == [ahead, other]
        d.start(ahead)
        d.token(ahead, 0)
        await finish(d, ahead, 1)
        assert d.decoder.admitted.empty()


async def test_the_decoder_dies_meanwhile(bus: Bus, model_key: str) -> None:
    async with desk(bus, model_key, n_slots=N_SLOTS) as d:
        g = events.new_id()
        await d.prepare(g)
        assert await d.admits(1) == [g]
        d.token(g, 0, "lost")
        d.crash()
        await d.request(g)
        d.restart()
        assert await d.admits(1) == [g]
        d.start(g)
        d.token(g, 0, "kept")
        assert texts(await finish(d, g, 1)) == "kept"
