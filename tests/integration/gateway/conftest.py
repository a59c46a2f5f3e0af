"""A gateway on a port of its own, and an engine that follows a script."""

from collections.abc import AsyncIterator

import pytest

from schemas import ids, subjects
from services.bus.connection import Bus
from tests.support.gateway import Gateway, healthy, running_gateway
from tests.support.scripted_engine import ScriptedEngine


@pytest.fixture
async def gateway(bus: Bus) -> AsyncIterator[Gateway]:
    async with running_gateway(bus, subjects.model_key(ids.new_generation_id())) as running:
        yield running


@pytest.fixture
async def engine(bus: Bus, gateway: Gateway) -> AsyncIterator[ScriptedEngine]:
    """Its model is loaded, and the gateway knows."""
    scripted = ScriptedEngine(bus, gateway.model_key)
    await scripted.start()
    await healthy(gateway)
    yield scripted
    scripted.gates.open()
    await scripted.stop()
