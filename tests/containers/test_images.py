"""Our images under load: containers are killed, stopped and cut off."""

import asyncio
from collections.abc import Iterator

import pytest

from schemas.events import Released
from tests.support.containers import NATS_LEAKS, ContainerFleet
from tests.support.drill import LEASE_S, Drill, begun, text_of

N_TOKENS = 240


@pytest.fixture(scope="module")
def fleet(images: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ContainerFleet]:
    with ContainerFleet(tmp_path_factory.mktemp("images"), 1, LEASE_S) as running:
        yield running


async def test_they_run_without_privileges(drill: Drill, fleet: ContainerFleet) -> None:
    for name in ("e0", "g0", "m0"):
        code, output = fleet[name].container.exec_run("id -u")
        assert (code, output.decode().strip()) == (0, "10001")


async def test_an_engine_is_killed(drill: Drill, fleet: ContainerFleet) -> None:
    a_reader = drill.reader()
    asking = drill.ask(a_reader)
    await begun(a_reader)
    await asyncio.to_thread((await drill.owner(a_reader)).kill)
    answer = await asking
    assert answer.n_resumes == 0
    await drill.check(answer, n_attempts=2)
    assert text_of(answer) == await drill.undisturbed()


async def test_an_engine_is_stopped(drill: Drill, fleet: ContainerFleet) -> None:
    """`docker stop`: what takes longer than the grace time is handed over."""
    a_reader = drill.reader()
    asking = drill.ask(a_reader, n_predict=800)
    await begun(a_reader)
    assert await asyncio.to_thread((await drill.owner(a_reader)).stop) == 0
    answer = await asking
    events = await drill.check(answer, n_attempts=2)
    assert any(isinstance(event, Released) for event in events)
    assert answer.longest_pause_s < LEASE_S


async def test_an_engine_is_cut_off(drill: Drill, fleet: ContainerFleet) -> None:
    """It goes on decoding, alone; another one takes over; back again it drops the slot."""
    a_reader = drill.reader()
    asking = drill.ask(a_reader, n_predict=N_TOKENS)
    await begun(a_reader)
    owner = await drill.owner(a_reader)
    await asyncio.to_thread(owner.cut_off)
    answer = await asking
    await asyncio.to_thread(owner.rejoin)
    await drill.check(answer, n_attempts=2)
    assert text_of(answer) == await drill.undisturbed(n_predict=N_TOKENS)
    await drill.no_slot_is_busy()
    await drill.no_task_is_left()


async def test_a_gateway_is_killed_and_comes_back(drill: Drill, fleet: ContainerFleet) -> None:
    a_reader = drill.reader()
    asking = drill.ask(a_reader)
    await begun(a_reader)
    await asyncio.to_thread(fleet["g0"].kill)
    await asyncio.to_thread(fleet["g0"].start)
    answer = await asking
    assert answer.n_resumes > 0
    await drill.check(answer, n_attempts=1)


@NATS_LEAKS
async def test_the_broker_is_killed_and_comes_back(drill: Drill, fleet: ContainerFleet) -> None:
    readers = [drill.reader(f"g{n % 2}") for n in range(4)]
    asking = [drill.ask(each, n_predict=N_TOKENS) for each in readers]
    for a_reader in readers:
        await begun(a_reader, 500)
    await asyncio.to_thread(fleet.nats.nodes["n0"].kill)
    await asyncio.to_thread(fleet.nats.nodes["n0"].start)
    expected = await drill.undisturbed(n_predict=N_TOKENS)
    for answer in await asyncio.gather(*asking):
        await drill.check(answer)
        assert text_of(answer) == expected
