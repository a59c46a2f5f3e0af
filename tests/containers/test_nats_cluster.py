"""Three brokers in containers, every stream on all of them: the leader dies, or is cut off."""

import asyncio
from collections.abc import Iterator

import pytest

from schemas import subjects
from services.bus.jetstream import api
from tests.support.containers import NATS_LEAKS, ContainerFleet
from tests.support.drill import Drill, begun, text_of

LEASE_S = 15.0
N_TOKENS = 400


@pytest.fixture(scope="module")
def fleet(images: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ContainerFleet]:
    with ContainerFleet(tmp_path_factory.mktemp("cluster"), 3, LEASE_S) as running:
        yield running


@NATS_LEAKS
@pytest.mark.parametrize("how", ["killed", "cut off"])
async def test_the_leader_is(how: str, drill: Drill, fleet: ContainerFleet) -> None:
    """An election takes up to 9 s; what was accepted is whole, and nothing is doubled."""
    readers = [drill.reader(f"g{n % 2}") for n in range(4)]
    asking = [drill.ask(each, n_predict=N_TOKENS) for each in readers]
    for a_reader in readers:
        await begun(a_reader)
    info = await api(drill.bus, f"STREAM.INFO.{subjects.GENERATIONS_STREAM}")
    leader = fleet.nats.nodes[info["cluster"]["leader"]]
    strike, repair = (
        (leader.kill, leader.start) if how == "killed" else (leader.cut_off, leader.rejoin)
    )
    await asyncio.to_thread(strike)
    answers = await asyncio.gather(*asking)
    await asyncio.to_thread(repair)
    expected = await drill.undisturbed(n_predict=N_TOKENS)
    for answer in answers:
        await drill.check(answer)
        assert text_of(answer) == expected
    await drill.no_task_is_left()
