"""Clients that leave, and stops from anywhere: the slot is free at once, nobody else is touched."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from schemas.events import Cancelled
from schemas.generation import Generation
from tests.support.drill import LONG, Drill, begun, drill, simulated_fleet
from tests.support.fleet import Fleet
from tests.support.logs import ended, until


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with simulated_fleet(tmp_path_factory.mktemp("leaving")) as running:
        yield running


@pytest.fixture
async def alone(fleet: Fleet) -> AsyncIterator[Drill]:
    async with drill(fleet, "e0") as made:
        yield made


@pytest.mark.parametrize("stage", ["queued", "prefilling", "generating"])
@pytest.mark.parametrize("is_streamed", [True, False], ids=["streamed", "whole"])
async def test_a_client_that_leaves_frees_its_slot(
    alone: Drill, stage: str, is_streamed: bool
) -> None:
    """Nobody can come back for it: the queued one never runs, the running one stops."""
    neighbour = alone.reader()
    asking = alone.ask(neighbour)
    await begun(neighbour, 500)
    body = LONG | {"n_predict": 2000, "stream": is_streamed}
    others = [await post(alone, body) for _ in range(3 if stage == "queued" else 0)]
    leaving, left = await post(alone, body)
    if stage != "queued":
        n_at_least = int(stage == "generating")
        await until(alone.bus, left, lambda s: is_begun(s, n_at_least))
    await leave(leaving)
    state = await ended(alone.bus, left)
    assert isinstance(state.end, Cancelled)
    assert (state.attempt == 0) == (stage == "queued")
    await leave(*(task for task, _ in others))
    await alone.check(await asking, n_attempts=1)
    await alone.no_slot_is_busy()
    await alone.no_task_is_left()


async def post(alone: Drill, body: dict[str, object]) -> "tuple[asyncio.Task[object], str]":
    """A request on its way, and the id of its log."""
    known = await alone.generation_ids()
    url = alone.url("g0", "/completion")
    asking = asyncio.create_task(alone.http.post(url, json=body))
    (generation_id,) = await alone.new_ids(known, 1)
    return asking, generation_id


async def leave(*tasks: "asyncio.Task[object]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def is_begun(state: Generation, n_tokens: int) -> bool:
    return state.first_started is not None and sum(state.n_tokens.values()) >= n_tokens


async def test_a_stop_from_any_replica(alone: Drill) -> None:
    """The streams service ends what one gateway began and another one shows."""
    first = alone.reader()
    asking = alone.ask(first, n_predict=5000)
    await begun(first)
    second = alone.reader("g1", first.answer.conversation)
    following = asyncio.create_task(second.follow())
    await begun(second)
    query = {"conv_id": first.answer.conversation}
    assert (await alone.http.delete(alone.url("s0", "/v1/stream"), params=query)).status_code == 204
    answer, seen = await asyncio.gather(asking, following)
    assert answer.body == seen.body
    state = await ended(alone.bus, answer.headers["x-generation-id"])
    assert isinstance(state.end, Cancelled)
    await alone.no_slot_is_busy()


async def test_of_many_at_once_in_one_conversation_one_stays(alone: Drill) -> None:
    """At both gateways: whoever swapped last is shown; all others are cancelled, by the fence."""
    known = await alone.generation_ids()
    readers = [alone.reader(f"g{n % 2}", "replaced") for n in range(6)]
    asking = [alone.ask(each, n_predict=40) for each in readers]
    ids = await alone.new_ids(known, 6)
    answers = await asyncio.gather(*asking)
    ends = [(await ended(alone.bus, each)).end for each in ids]
    assert sum(isinstance(end, Cancelled) for end in ends) == 5
    shown = await alone.http.get(alone.url("s0", "/v1/stream"), params={"conv_id": "replaced"})
    assert shown.content in [answer.body for answer in answers]
    await alone.no_slot_is_busy()
    await alone.no_task_is_left()
