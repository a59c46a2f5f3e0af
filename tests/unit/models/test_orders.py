"""Orders: single-flight, repeated until the host is there."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from schemas.errors import RequestError
from schemas.rpc import HostOrder, StartEngine, StopEngine
from services.bus.errors import NoResponder
from services.models import orders
from services.models.lifecycle import Order, Verb
from services.models.orders import Orders, engine_id, host_order

START = StartEngine(model_key="key", engine="e0")
STOP = StopEngine(engine="e0")


class Host:
    """Answers as told: exceptions first, then success; may be held."""

    def __init__(self, *troubles: Exception) -> None:
        self.troubles = list(troubles)
        self.heard: list[HostOrder] = []
        self.refusals: list[str] = []
        self.is_open = asyncio.Event()
        self.is_open.set()

    async def ask(self, order: HostOrder) -> None:
        self.heard.append(order)
        await self.is_open.wait()
        if self.troubles:
            raise self.troubles.pop(0)


@pytest.fixture(autouse=True)
def _quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orders, "FIRST_RETRY_S", 0.001)


@pytest.fixture
async def running() -> AsyncIterator[list[Orders]]:
    made: list[Orders] = []
    yield made
    for each in made:
        await each.stop()


def orders_to(host: Host, running: list[Orders]) -> Orders:
    running.append(Orders(host.ask, host.refusals.append))
    return running[-1]


async def test_an_order_is_repeated_until_the_host_is_there(running: list[Orders]) -> None:
    host = Host(NoResponder("nobody"), NoResponder("nobody"))
    given = orders_to(host, running)
    given.give(START)
    await given.first_try(5)
    assert host.heard == [START] * 3
    assert host.refusals == [""]


async def test_the_same_order_under_way_is_joined(running: list[Orders]) -> None:
    host = Host()
    host.is_open.clear()
    given = orders_to(host, running)
    for _ in range(5):
        given.give(START)
        await asyncio.sleep(0)
    host.is_open.set()
    await given.first_try(5)
    assert host.heard == [START]


async def test_another_order_replaces_the_one_under_way(running: list[Orders]) -> None:
    host = Host()
    host.is_open.clear()
    given = orders_to(host, running)
    given.give(START)
    await asyncio.sleep(0)
    given.give(STOP)
    host.is_open.set()
    await given.first_try(5)
    assert host.heard == [START, STOP]
    assert host.refusals == [""]  # of the second alone


async def test_a_refusal_is_told_and_taken_back(running: list[Orders]) -> None:
    host = Host(RequestError.server("cannot fork"))
    given = orders_to(host, running)
    given.give(START)
    await given.first_try(5)
    assert host.refusals == ["cannot fork", ""]


async def test_the_first_try_does_not_wait_for_ever(running: list[Orders]) -> None:
    host = Host()
    host.is_open.clear()
    given = orders_to(host, running)
    given.give(START)
    await given.first_try(0.01)
    assert host.refusals == []


def test_ids_are_the_same_for_every_process() -> None:
    assert engine_id("key", 1) == engine_id("key", 1) == "e1-key"


def test_orders_carry_flags_and_ordinal() -> None:
    start = Order(verb=Verb.START, engine="e1-key")
    assert host_order(start, "key", {"e1-key": 1}, {"LLAMA_ARG_CTX_SIZE": "64"}) == StartEngine(
        model_key="key",
        engine="e1-key",
        env={"LLAMA_ARG_CTX_SIZE": "64", "LLAMATAPE_ENGINE_ORDINAL": "1"},
    )
    stop = Order(verb=Verb.STOP, engine="e1-key")
    assert host_order(stop, "key", {}, {}) == StopEngine(engine="e1-key")
