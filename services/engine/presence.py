"""Tells the platform that this engine is alive and how far it is."""

import asyncio
import logging
import time

import msgspec

from schemas import codec, subjects
from schemas.errors import SchemaError
from schemas.lifecycle import LOADED, EnginePresence
from services.bus.connection import Bus
from services.bus.errors import BusError
from services.bus.kv import Bucket

log = logging.getLogger(__name__)

PERIOD_S = 1.0
TTL_S = 4
LOOK_S = 5.0
"""Who else is there is looked up so often: to be wrong about it for a while costs some work only."""


class Presence:
    """Publishes an expiring key every second, and at once when something changes.

    is_alone: whether no other engine of the model was loaded when that was last looked at.
    """

    def __init__(self, bus: Bus, presence: EnginePresence) -> None:
        self._bucket = Bucket(bus, subjects.PRESENCE_BUCKET)
        self._presence = presence
        self.is_alone = False
        self._looked_at = float("-inf")
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
        """Publish once, and look who else is there if it is time; without a broker the next period tries
        again."""
        try:
            await self._bucket.put(self._key, codec.encode(self._presence), ttl_s=TTL_S)
            if time.monotonic() - self._looked_at >= LOOK_S:
                others = await self._bucket.entries(subjects.presence_key("engine", "*"))
                self.is_alone = not any(map(self._is_rival, others.values()))
                self._looked_at = time.monotonic()
        except BusError as error:
            log.warning("action=presence_lost error=%s", error)

    def _is_rival(self, value: bytes) -> bool:
        try:
            other = codec.decode(value, EnginePresence)
        except SchemaError:
            return True  # a newer build's
        is_other = other.engine != self._presence.engine
        return is_other and other.model_key == self._presence.model_key and other.status == LOADED

    async def withdraw(self) -> None:
        """Remove the key: this engine leaves."""
        try:
            await self._bucket.delete(self._key)
        except BusError as error:
            log.warning("action=presence_stays error=%s", error)
