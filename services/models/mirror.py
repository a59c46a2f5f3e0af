"""The mirror: one model as gateways need it, in the bucket `models`, at request speed."""

from typing import Protocol

from schemas import codec
from schemas.lifecycle import ModelStatus


class WritableBucket(Protocol):
    """The part of services.bus.kv.Bucket that is needed here."""

    async def put(self, key: str, value: bytes, ttl_s: int | None = None) -> int: ...


class Mirror:
    """Writes what changed. Event-loop thread."""

    def __init__(self, bucket: WritableBucket) -> None:
        self._bucket = bucket
        self._told: ModelStatus | None = None

    async def show(self, status: ModelStatus) -> None:
        """Put `status` unless it stands there already. Raises BusUnavailable."""
        if status == self._told:
            return
        await self._bucket.put(status.model_key, codec.encode(status))
        self._told = status
