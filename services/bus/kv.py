"""Buckets of keys and values with revisions.

A watch is a plain subscription plus a periodic look at the whole bucket: no consumer, and it heals
by itself after a restart of the broker.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import NamedTuple

from nats.aio.msg import Msg

from services.bus import header
from services.bus.ack_pipe import AckPipe, PublishRefused
from services.bus.connection import Bus, unsubscribe
from services.bus.direct_get import DirectReader
from services.bus.errors import BusUnavailable, KeyConflict
from services.bus.jetstream import api, last_message

log = logging.getLogger(__name__)

RECONCILE_S = 1.0
TOMBSTONE_HEADERS = ("KV-Operation", "Nats-Marker-Reason")


class Versioned(NamedTuple):
    """A key's value and the revision that an update must name."""

    value: bytes
    revision: int


class Bucket:
    """One bucket. Keys are made by schemas.subjects."""

    def __init__(self, bus: Bus, name: str) -> None:
        self._bus = bus
        self._stream = f"KV_{name}"
        self._prefix = f"$KV.{name}."

    async def get(self, key: str) -> Versioned | None:
        """Value and revision from the leader; None if absent or deleted. Raises BusUnavailable."""
        message = await last_message(self._bus, self._stream, self._prefix + key)
        if message is None or _is_tombstone(message.headers):
            return None
        return Versioned(message.data, message.seq)

    async def create(self, key: str, value: bytes) -> int:
        """Store a key that does not exist; its revision. Raises KeyConflict, BusUnavailable."""
        return await self.update(key, value, 0)

    async def update(self, key: str, value: bytes, revision: int, ttl_s: int | None = None) -> int:
        """Replace that revision; the new one. ttl_s: as in `put`. Raises KeyConflict, BusUnavailable."""
        headers = {"Nats-Expected-Last-Subject-Sequence": str(revision)}
        return await self._publish(key, value, headers | _ttl(ttl_s))

    async def put(self, key: str, value: bytes, ttl_s: int | None = None) -> int:
        """Store whatever was there. ttl_s: whole seconds until the key goes, ≥ 1."""
        return await self._publish(key, value, _ttl(ttl_s))

    async def delete(self, key: str) -> None:
        """Remove the key and its history, tombstone included. Idempotent. Raises BusUnavailable."""
        await api(self._bus, f"STREAM.PURGE.{self._stream}", {"filter": self._prefix + key})

    async def keys(self, pattern: str = ">") -> list[str]:
        """Living keys that match a subject pattern, sorted. Raises BusUnavailable."""
        return sorted(await self.entries(pattern))

    async def entries(self, pattern: str = ">") -> dict[str, bytes]:
        """Living keys and values that match a subject pattern. Raises BusUnavailable."""
        reader = self._bus.part(DirectReader)
        found: dict[str, bytes] = {}
        for message in await reader.read(self._stream, self._prefix + pattern):
            subject = header.field(message.headers, "Nats-Subject") or b""
            key = subject.decode()[len(self._prefix) :]
            if _is_tombstone(message.headers):
                found.pop(key, None)
            else:
                found[key] = message.data
        return found

    async def watch(
        self,
        callback: Callable[[str, bytes | None], None],
        pattern: str = ">",
        *,
        reconcile_s: float = RECONCILE_S,
    ) -> "Watch":
        """Call `callback(key, value)` for what is there, for every change, and with None when a key
        went. A value may be reported more than once. reconcile_s: how often all is read again, in
        case that a change was missed. Raises BusUnavailable."""
        watch = Watch(self._bus, self, callback, pattern, self._prefix, reconcile_s)
        await watch.start()
        return watch

    async def _publish(self, key: str, value: bytes, headers: dict[str, str]) -> int:
        try:
            return await self._bus.part(AckPipe).publish(self._prefix + key, value, headers)
        except PublishRefused as refusal:
            raise KeyConflict(f"key {key}: {refusal}") from refusal


class Watch:
    """A running watch; `stop` ends it."""

    def __init__(
        self,
        bus: Bus,
        bucket: Bucket,
        callback: Callable[[str, bytes | None], None],
        pattern: str,
        prefix: str,
        reconcile_s: float,
    ) -> None:
        self._bus = bus
        self._bucket = bucket
        self._callback = callback
        self._pattern = pattern
        self._prefix = prefix
        self._reconcile_s = reconcile_s
        self._known: dict[str, bytes] = {}
        self._n_changes = 0
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        subject = self._prefix + self._pattern
        self._subscription = await self._bus.nc.subscribe(subject, cb=self._on_message)
        await self._bus.flush()
        await self._reconcile()
        self._task = asyncio.create_task(self._keep_reconciling())

    async def stop(self) -> None:
        """Idempotent."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
            await unsubscribe(self._subscription)

    async def _on_message(self, message: Msg) -> None:
        self._n_changes += 1
        key = message.subject[len(self._prefix) :]
        is_gone = any(name in (message.headers or {}) for name in TOMBSTONE_HEADERS)
        self._learn(key, None if is_gone else message.data)

    async def _keep_reconciling(self) -> None:
        while True:
            await asyncio.sleep(self._reconcile_s)
            with contextlib.suppress(BusUnavailable):
                await self._reconcile()

    async def _reconcile(self) -> None:
        n_before = self._n_changes
        entries = await self._bucket.entries(self._pattern)
        if self._n_changes != n_before:
            return  # it may be older than what was heard meanwhile; look again next time
        for key, value in entries.items():
            self._learn(key, value)
        for key in self._known.keys() - entries.keys():
            self._learn(key, None)

    def _learn(self, key: str, value: bytes | None) -> None:
        if value is None:
            self._known.pop(key, None)
        elif self._known.get(key) == value:
            return
        else:
            self._known[key] = value
        try:
            self._callback(key, value)
        except Exception:
            log.exception("action=watch_callback_failed key=%s", key)


def _ttl(ttl_s: int | None) -> dict[str, str]:
    return {} if ttl_s is None else {"Nats-TTL": f"{ttl_s}s"}


def _is_tombstone(headers: bytes) -> bool:
    return any(header.field(headers, name) for name in TOMBSTONE_HEADERS)
