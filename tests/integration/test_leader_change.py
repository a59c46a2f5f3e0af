"""Three brokers, every stream on all of them: the leader dies in the middle of answers."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from schemas import subjects
from services.bus.jetstream import api
from tests.support.drill import Drill, begun, drill, simulated_fleet, text_of
from tests.support.fleet import Fleet

N_TOKENS = 400


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("cluster")
    with simulated_fleet(folder, n_nodes=3, LLAMATAPE_LEASE_S="15") as running:
        yield running


@pytest.fixture
async def both(fleet: Fleet) -> AsyncIterator[Drill]:
    async with drill(fleet, "e0", "e1") as made:
        yield made


@pytest.mark.parametrize("stream", [subjects.GENERATIONS_STREAM, subjects.TASKS_STREAM])
async def test_a_leader_dies(both: Drill, stream: str) -> None:
    """An election takes up to 9 s, and nothing accepted is lost or doubled."""
    readers = [both.reader(f"g{n % 2}") for n in range(4)]
    asking = [both.ask(each, n_predict=N_TOKENS) for each in readers]
    for a_reader in readers:
        await begun(a_reader)
    info = await api(both.bus, f"STREAM.INFO.{stream}")
    leader = both.fleet.nats.node(info["cluster"]["leader"])
    await asyncio.to_thread(leader.kill)
    answers = await asyncio.gather(*asking)
    assert len(info["cluster"]["replicas"]) == 2
    await asyncio.to_thread(leader.start)
    expected = await both.undisturbed(n_predict=N_TOKENS)
    for answer in answers:
        await both.check(answer)
        assert text_of(answer) == expected
    await both.no_task_is_left()
    await both.no_slot_is_busy()
