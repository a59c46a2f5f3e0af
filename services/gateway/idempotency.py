"""Idempotency keys: which generation a caller's key stands for, the same on every gateway.

The bucket names the generation before its log is opened; who opens the log is decided by its fence.
So a gateway may die at any moment: whoever asks next finds the log, or opens it.
"""

import asyncio
import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

from schemas import codec, subjects
from schemas.errors import RequestError
from schemas.events import Cancelled, Event, Failed
from schemas.ids import derived_generation_id
from schemas.tasks import IdempotentRequest
from services.bus.errors import BusUnavailable, KeyConflict
from services.bus.keys import Keys
from services.gateway import errors
from services.gateway.asking import Idempotency
from services.streams.logs import Logs

OPENED_WITHIN_MS = 60_000
"""A log that is still empty then will not be opened under that id any more."""
GRACE_S = 60
"""So long a key outlives its window in the bucket, so that its end is decided by the time in it."""
CONFLICT_WAIT_S = 0.2
MAX_CONFLICTS = 20
CLIENT_GONE = "client_gone"


class Forgotten(Protocol):
    """Generations that their owners want gone."""

    async def has(self, generation_id: str) -> bool: ...


class Found(NamedTuple):
    """What a key stands for. generation_id: None where it is free. is_open: its log has begun.
    revision: of the key in the bucket."""

    generation_id: str | None
    is_open: bool
    revision: int


class IdempotencyKeys:
    """Looks keys up and takes them. Methods raise RequestError (422), BusUnavailable."""

    def __init__(
        self,
        keys: Keys,
        logs: Logs,
        forgotten: Forgotten,
        window_s: int,
        *,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._keys = keys
        self._logs = logs
        self._forgotten = forgotten
        self._window_s = window_s
        self._now_ms = now_ms

    async def find(self, caller: str, asked: Idempotency) -> Found:
        """What the key stands for now. Free is one that nobody used within the window, whose
        generation failed, or whose owner has deleted it."""
        stored = await self._keys.get(subjects.idempotency_key(caller, asked.key))
        if stored is None:
            return Found(None, False, 0)
        entry = codec.decode(stored.value, IdempotentRequest)
        free = Found(None, False, stored.revision)
        if self._age_ms(entry) >= self._window_s * 1000:
            return free
        last = await self._logs.last_entry(entry.generation_id)
        if await self._is_spent(entry, () if last is None else last.events):
            return free
        if entry.request_hash != asked.request_hash:
            raise RequestError(errors.key_used_otherwise(asked.key))
        return Found(entry.generation_id, last is not None, stored.revision)

    async def take(self, caller: str, asked: Idempotency, found: Found) -> str | None:
        """Let a free key stand for a new generation; its id, None where somebody was faster."""
        now_ms = self._now_ms()
        generation_id = derived_generation_id(caller, asked.key, str(found.revision), str(now_ms))
        entry = IdempotentRequest(
            generation_id=generation_id, request_hash=asked.request_hash, created_at_ms=now_ms
        )
        key = subjects.idempotency_key(caller, asked.key)
        ttl_s = self._window_s + GRACE_S
        try:
            await self._keys.update(key, codec.encode(entry), found.revision, ttl_s)
        except KeyConflict:
            return None
        return generation_id

    def _age_ms(self, entry: IdempotentRequest) -> int:
        return self._now_ms() - entry.created_at_ms

    async def _is_spent(self, entry: IdempotentRequest, last_events: tuple[Event, ...]) -> bool:
        """Whether there is nothing to come back to. last_events: of the log's last entry."""
        if not last_events:
            return self._age_ms(entry) >= OPENED_WITHIN_MS
        if any(_is_no_answer(event) for event in last_events):
            return True
        return await self._forgotten.has(entry.generation_id)


class Conflicts:
    """Lets those who were not first look again, for a while."""

    def __init__(self) -> None:
        self._n = 0

    async def again(self) -> None:
        """Raises BusUnavailable when it is hopeless."""
        self._n += 1
        if self._n > MAX_CONFLICTS:
            raise BusUnavailable("the idempotency key changes all the time")
        await asyncio.sleep(CONFLICT_WAIT_S if self._n > 1 else 0)


def _is_no_answer(event: Event) -> bool:
    """Ends after which asking again is right: it failed, or it was given up while it was opened."""
    if isinstance(event, Cancelled):
        return event.reason == CLIENT_GONE
    return isinstance(event, Failed)
