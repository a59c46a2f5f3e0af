"""Keys of the database as tests make them: straight into the bucket, known to every gateway."""

import asyncio
from typing import Any

import httpx

from schemas import codec, ids, subjects
from schemas.keys import KeyLimits, KeyRecord, KeyUsage
from services.bus.connection import Bus
from services.bus.kv import Bucket
from services.edge.key_ring import digest_of

TIMEOUT_S = 10.0
POLL_S = 0.01


class TestKey:
    """One key. secret: what clients send."""

    __test__ = False

    def __init__(self, bus: Bus, **fields: Any) -> None:
        limits = {name: fields.pop(name) for name in KeyLimits.__struct_fields__ if name in fields}
        self.secret = f"sk-{ids.new_generation_id()}"
        self.record = KeyRecord(
            id=ids.new_short_id("key_"),
            digest=digest_of(self.secret),
            limits=KeyLimits(**limits),
            **fields,
        )
        self._bus = bus

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.secret}"}

    async def publish(self, record: KeyRecord | None = None) -> None:
        """Put it, or what has become of it, into the bucket."""
        self.record = record or self.record
        bucket = Bucket(self._bus, subjects.API_KEYS_BUCKET)
        await bucket.put(self.record.digest, codec.encode(self.record))

    async def usage(self) -> KeyUsage:
        found = await Bucket(self._bus, subjects.LIMITS_BUCKET).get(self.record.id)
        return KeyUsage() if found is None else codec.decode(found.value, KeyUsage)

    async def set_usage(self, usage: KeyUsage) -> None:
        """As another gateway would have left it."""
        await Bucket(self._bus, subjects.LIMITS_BUCKET).put(self.record.id, codec.encode(usage))

    async def usage_when(self, n_running: int) -> KeyUsage:
        """What it has used, once so many of its generations count as running."""
        async with asyncio.timeout(TIMEOUT_S):
            found = await self.usage()
            while len(found.running) != n_running:
                await asyncio.sleep(POLL_S)
                found = await self.usage()
            return found


async def known_at(client: httpx.AsyncClient, key: TestKey) -> None:
    """Return once a gateway knows the key, and that nobody may ask without one."""
    await status_when(client, {}, 401)
    await status_when(client, key.headers, 200)


async def status_when(client: httpx.AsyncClient, headers: dict[str, str], status: int) -> None:
    """Return once a gateway answers such requests like that."""
    async with asyncio.timeout(TIMEOUT_S):
        response = await client.get("/v1/models", headers=headers)
        while response.status_code != status:
            await asyncio.sleep(POLL_S)
            response = await client.get("/v1/models", headers=headers)
