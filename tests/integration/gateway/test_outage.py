"""A broker or an engine that is not there: 503 with Retry-After, and all is well afterwards."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from services.bus.config import BusSettings
from services.bus.connection import Bus, connect
from services.bus.topology import ensure_topology
from services.cli.broker import start_broker
from tests.support.gateway import Gateway, healthy
from tests.support.keys import TestKey, known_at
from tests.support.scripted_engine import ScriptedEngine

CHAT = "/v1/chat/completions"
BODY = {"messages": [{"role": "user", "content": "hi"}]}


class OwnBroker:
    """A broker that a test may kill and start again at the same address."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._broker = start_broker(folder)

    @property
    def settings(self) -> BusSettings:
        return BusSettings(url=self._broker.url, token=self._broker.token, lease_s=1.0)

    def kill(self) -> None:
        self._broker.kill()

    def restart(self) -> None:
        old = self._broker
        self._broker = start_broker(self._folder, token=old.token, port=old.port)


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[OwnBroker]:
    broker = OwnBroker(tmp_path)
    yield broker
    broker.kill()


@pytest.fixture
async def bus(own_broker: OwnBroker) -> AsyncIterator[Bus]:
    connection = await connect(own_broker.settings, name="outage")
    await ensure_topology(connection)
    yield connection
    with contextlib.suppress(OSError):  # the test may have killed what it would say goodbye to
        await connection.close()


async def test_while_the_broker_is_away(
    bus: Bus, own_broker: OwnBroker, engine: ScriptedEngine, gateway: Gateway
) -> None:
    gone = asyncio.Event()
    bus.on_disconnect(gone.set)
    own_broker.kill()
    await asyncio.wait_for(gone.wait(), 5)
    body = {**BODY, "prompt": "hi", "content": "hi"}
    for path in (CHAT, "/v1/completions", "/completion", "/tokenize", "/slots"):
        method = "GET" if path == "/slots" else "POST"
        response = await gateway.client.request(method, path, json=body)
        assert (response.status_code, response.headers["retry-after"]) == (503, "1")
        assert response.json()["error"]["type"] == "unavailable_error"


async def test_a_key_over_its_limit_hears_of_the_broker_first(
    bus: Bus, own_broker: OwnBroker, engine: ScriptedEngine, gateway: Gateway
) -> None:
    key = TestKey(bus, requests_per_minute=1)
    await key.publish()
    await known_at(gateway.client, key)
    answers = [await gateway.client.post(CHAT, json=BODY, headers=key.headers) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 429]
    gone = asyncio.Event()
    bus.on_disconnect(gone.set)
    own_broker.kill()
    await asyncio.wait_for(gone.wait(), 5)
    response = await gateway.client.post(CHAT, json=BODY, headers=key.headers)
    assert (response.status_code, response.headers["retry-after"]) == (503, "1")


async def test_after_the_broker_came_back(
    bus: Bus, own_broker: OwnBroker, engine: ScriptedEngine, gateway: Gateway
) -> None:
    back = asyncio.Event()
    bus.on_reconnect(back.set)
    own_broker.kill()
    own_broker.restart()
    await asyncio.wait_for(back.wait(), 5)
    response = await gateway.client.post(CHAT, json=BODY)
    assert response.status_code == 200, response.text


async def test_without_an_engine(bus: Bus, own_broker: OwnBroker, gateway: Gateway) -> None:
    """The model was loaded once; then its engine went away with its connection."""
    its_bus = await connect(own_broker.settings, name="engine")
    engine = ScriptedEngine(its_bus, gateway.model_key)
    await engine.start()
    await healthy(gateway)
    await engine.stop()
    await its_bus.close()
    for path in (CHAT, "/tokenize"):
        response = await gateway.client.post(path, json={**BODY, "content": "x"})
        assert (response.status_code, response.headers["retry-after"]) == (503, "1")
