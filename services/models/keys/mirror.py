"""The mirror of the keys: what the table says, in the bucket that gateways watch.

Nothing is ever taken out of the bucket. What it holds beside the table, as after a database was put
back, is revoked there: an empty bucket would mean that everybody may ask.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Protocol

import msgspec

from schemas import codec
from schemas.errors import SchemaError
from schemas.keys import KeyRecord
from services.bus.errors import BusError
from services.database.errors import DatabaseError
from services.logs import event

log = logging.getLogger(__name__)

POLL_S = 1.0
"""Commands write into the database, whether this service runs or not."""
COMPARE_POLLS = 10
"""So often the bucket is looked at though the table is as it was: its broker may have lost it."""
FIRST_RETRY_S = 0.2
LAST_RETRY_S = 5.0


class Rows(Protocol):
    """The part of services.models.keys.store.KeyStore that is needed here. Raises DatabaseError."""

    async def all(self) -> list[KeyRecord]: ...
    async def stand(self) -> object:
        """Something that is different after every change."""
        ...

    async def close(self) -> None: ...


class Bucket(Protocol):
    """The part of services.bus.kv.Bucket that is needed here. Raises BusUnavailable."""

    async def entries(self, pattern: str = ">") -> dict[str, bytes]: ...
    async def put(self, key: str, value: bytes, ttl_s: int | None = None) -> int: ...


def changes(
    records: Iterable[KeyRecord], mirrored: Mapping[str, bytes], now_ms: int
) -> dict[str, bytes]:
    """What must be put, by digest, so that the bucket says what the table says. Pure."""
    wanted = {record.digest: codec.encode(record) for record in records}
    for digest in mirrored.keys() - wanted.keys():
        wanted[digest] = _revoked(digest, mirrored[digest], now_ms)
    return {digest: data for digest, data in wanted.items() if mirrored.get(digest) != data}


def _revoked(digest: str, data: bytes, now_ms: int) -> bytes:
    try:
        record = codec.decode(data, KeyRecord)
    except SchemaError:
        record = KeyRecord(id="unknown", digest=digest)
    at_ms = record.revoked_at_ms or now_ms
    return codec.encode(msgspec.structs.replace(record, revoked_at_ms=at_ms))


class KeyMirror:
    """Keeps the bucket like the table. Event-loop thread. now_ms: Unix milliseconds."""

    def __init__(
        self,
        open_rows: Callable[[], Awaitable[Rows]],
        bucket: Bucket,
        now_ms: Callable[[], int],
        *,
        poll_s: float = POLL_S,
    ) -> None:
        self._open_rows, self._bucket, self._now_ms = open_rows, bucket, now_ms
        self._poll_s = poll_s
        self._shown: object = None

    async def run(self) -> None:
        """Until cancelled; a database or broker that is away is tried again."""
        delay_s = FIRST_RETRY_S
        while True:
            try:
                rows = await self._open_rows()
                delay_s = FIRST_RETRY_S
                try:
                    await self._follow(rows)
                finally:
                    await rows.close()
            except (DatabaseError, BusError) as error:
                event(log, "keys_retry", level=logging.WARNING, wait_s=delay_s, error=str(error))
            except Exception:
                log.exception("action=key_mirror_failed")
            await asyncio.sleep(delay_s)
            delay_s = min(delay_s * 2, LAST_RETRY_S)

    async def _follow(self, rows: Rows) -> None:
        while True:
            self._shown = None
            for _ in range(COMPARE_POLLS):
                await self.once(rows)
                await asyncio.sleep(self._poll_s)

    async def once(self, rows: Rows) -> None:
        """Look at the table, and show what is new in it."""
        stand = await rows.stand()
        if stand == self._shown:
            return
        new = changes(await rows.all(), await self._bucket.entries(), self._now_ms())
        for digest, data in new.items():
            await self._bucket.put(digest, data)
        if new:
            event(log, "keys_mirrored", n=len(new))
        self._shown = stand
