"""nats-py's own client, which ours must agree with."""

from collections.abc import AsyncIterator

import pytest
from nats.aio.client import Client

from services.bus.connection import Bus


@pytest.fixture
async def plain(bus: Bus) -> AsyncIterator[Client]:
    client = Client()
    await client.connect(bus.settings.url, token=bus.settings.token)
    yield client
    await client.close()
