"""Tells the platform that this engine is alive and how far it is."""

import asyncio
import logging

import msgspec

from schemas import codec, subjects
from schemas.lifecycle import EnginePresence
from services.bus.connection import Bus
from services.bus.errors import BusError
from services.bus.kv import Bucket

log = logging.getLogger(__name__)

PERIOD_S = 1.0
TTL_S = 4


class Presence:
    """Publishes an expiring key every second, and at once when something changes."""

    def __init__(self, bus: Bus, presence: EnginePresence) -> None:
        self._bucket = Bucket(bus, subjects.PRESENCE_BUCKET)
        self._presence = presence
        self._key = subjects.presence_key("engine", presence.engine)
        self._changed = asyncio.Event()

    def update(self, **changes: object) -> None:
        """Change fields of the EnginePresence; published soon."""
        self._presence = msgspec.structs.replace(self._presence, **changes)
        self._changed.set()

    async def run(self) -> None:
        """Publish until cancelled."""
        while True:
            self._changed.clear()
            await self.publish()
            try:
                async with asyncio.timeout(PERIOD_S):
                    await self._changed.wait()
            except TimeoutError:
                pass

    async def publish(self) -> None:
        """Publish once; without a broker the next period tries again."""
        try:
            await self._bucket.put(self._key, codec.encode(self._presence), ttl_s=TTL_S)
        except BusError as error:
            log.warning("action=presence_lost error=%s", error)

    async def withdraw(self) -> None:
        """Remove the key: this engine leaves."""
        try:
            await self._bucket.delete(self._key)
        except BusError as error:
            log.warning("action=presence_stays error=%s", error)
