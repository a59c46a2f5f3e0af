"""The database's keys as the bus knows them, kept in a ring that authentication asks."""

import contextlib
import logging
from collections.abc import AsyncGenerator

from schemas import codec, subjects
from schemas.errors import SchemaError
from schemas.keys import KeyRecord
from services.bus.connection import Bus
from services.bus.kv import Bucket
from services.edge.key_ring import KeyRing

log = logging.getLogger(__name__)

RECONCILE_S = 5.0
"""Changes are heard of at once; this is for one that was missed. A ring may hold thousands of keys."""


@contextlib.asynccontextmanager
async def watching_keys(bus: Bus, keys: KeyRing) -> AsyncGenerator[None]:
    """While inside, `keys` knows what the bucket holds; on entry already. Raises BusUnavailable."""

    def on_change(digest: str, value: bytes | None) -> None:
        try:
            keys.learn(digest, None if value is None else codec.decode(value, KeyRecord))
        except SchemaError:
            log.exception("action=key_unreadable digest=%s", digest)
            keys.learn(digest, None)

    bucket = Bucket(bus, subjects.API_KEYS_BUCKET)
    watch = await bucket.watch(on_change, reconcile_s=RECONCILE_S)
    try:
        yield
    finally:
        await watch.stop()
