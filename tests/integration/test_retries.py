"""Retries under an idempotency key, over real processes that are killed in the middle."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress

import httpx
import pytest

from services.bus.log import read_log
from tests.support.drill import LONG, Drill, check_log, drill, simulated_fleet, until_true
from tests.support.fleet import Fleet

GATEWAYS = ("g0", "g1")
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with simulated_fleet(tmp_path_factory.mktemp("retries")) as running:
        yield running


@pytest.fixture
async def pair(fleet: Fleet) -> AsyncIterator[Drill]:
    async with drill(fleet, "e0") as made:
        yield made


class Asker:
    """A client that insists: the same request under one key, at one gateway after the other."""

    def __init__(self, made: Drill, key: str, **changes: object) -> None:
        self._drill = made
        self._headers = {"Idempotency-Key": key}
        self._body = LONG | changes
        self.begun = asyncio.Event()

    async def ask(self, gateway: str) -> tuple[str, bytes]:
        """Generation id and the whole answer. Raises httpx.HTTPError where it breaks off."""
        http, url = self._drill.http, self._drill.url(gateway, "/completion")
        async with http.stream("POST", url, json=self._body, headers=self._headers) as response:
            if response.status_code != 200:
                raise httpx.ReadError(f"{response.status_code}")
            chunks: list[bytes] = []
            async for chunk in response.aiter_bytes():
                chunks.append(chunk)
                if b"data: " in chunk:
                    self.begun.set()
            return response.headers["x-generation-id"], b"".join(chunks)

    async def insist(self, first: str = "g0") -> tuple[str, bytes]:
        """The answer, whoever gives it."""
        gateways = [first, *(name for name in GATEWAYS if name != first)]
        async with asyncio.timeout(PATIENCE_S):
            while True:
                for gateway in gateways:
                    with suppress(httpx.HTTPError):
                        return await self.ask(gateway)
                await asyncio.sleep(0.05)


async def check(made: Drill, generation_id: str) -> None:
    """Its log has one end, and nothing out of order."""
    entries = await read_log(made.bus, generation_id)
    check_log([event for entry in entries for event in entry.events])


@pytest.mark.parametrize("stream", [True, False])
async def test_a_gateway_that_is_killed_in_the_middle(
    pair: Drill, fleet: Fleet, stream: bool
) -> None:
    """The other one gives the same answer of the same generation, from its beginning."""
    key, known = f"killed {stream}", await pair.generation_ids()
    asking = asyncio.create_task(Asker(pair, key, stream=stream).insist())
    (generation_id,) = await pair.new_ids(known, 1)

    async def has_tokens() -> bool:
        state = await pair.state(generation_id)
        return sum(state.n_tokens.values()) > 10

    await until_true(has_tokens, 20)
    fleet["g0"].kill()
    found_id, body = await asking
    assert found_id == generation_id
    await asyncio.to_thread(fleet.ensure, "e0")
    for gateway in GATEWAYS:
        assert await Asker(pair, key, stream=stream).ask(gateway) == (generation_id, body)
    assert await pair.generation_ids() - known == {generation_id}
    await check(pair, generation_id)


async def test_gateways_that_are_killed_at_any_moment(pair: Drill, fleet: Fleet) -> None:
    """Before the key is taken, between task and log, while it runs: each client gets one answer, and
    all who asked under one key get the same."""
    known = await pair.generation_ids()
    asked = [
        [Asker(pair, f"storm {n}", n_predict=30, seed=n).insist(GATEWAYS[m % 2]) for m in range(3)]
        for n in range(12)
    ]
    answers = [asyncio.create_task(each) for same in asked for each in same]
    for turn in range(3):
        await asyncio.wait(answers, timeout=0.1 + 0.05 * turn)
        victim = fleet[GATEWAYS[turn % 2]]
        victim.kill()
        victim.start()
    found = await asyncio.gather(*answers)
    for n in range(12):
        assert len(set(found[3 * n : 3 * n + 3])) == 1
    await asyncio.to_thread(fleet.ensure, "e0")
    for generation_id, _ in set(found):
        await check(pair, generation_id)
    assert len({generation_id for generation_id, _ in found}) == 12
    await pair.no_task_is_left(60)
    assert {generation_id for generation_id, _ in found} <= await pair.generation_ids() - known


async def test_an_engine_that_is_killed_in_the_middle(pair: Drill, fleet: Fleet) -> None:
    """A retry that joined before sees what follows, once."""
    first, second = (Asker(pair, "engine") for _ in range(2))
    asking = [asyncio.create_task(first.insist()), asyncio.create_task(second.insist("g1"))]
    await asyncio.gather(first.begun.wait(), second.begun.wait())
    fleet["e0"].kill()
    fleet["e0"].start()
    found = await asyncio.gather(*asking)
    assert found[0] == found[1]
    await check(pair, found[0][0])
