"""Tasks for one engine that is not there any more: any other engine of the model may do them."""

import logging
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from schemas import codec, subjects
from schemas.errors import SchemaError
from schemas.lifecycle import LOADED, LOADING, EnginePresence
from services.bus.open_tasks import OpenTask

log = logging.getLogger(__name__)

STRAY_MS = 10_000
"""So old is a task whose engine is missed: that one may have been restarted meanwhile."""


class Queue(Protocol):
    """The work queue. Methods raise BusUnavailable, StoreFull."""

    async def send_to_all(self, found: OpenTask) -> None:
        """Put that task into the queue that all engines of its model take from. Idempotent."""
        ...

    async def remove(self, seq: int) -> None: ...


class Presence(Protocol):
    async def entries(self, pattern: str) -> dict[str, bytes]:
        """Who is there. Raises BusUnavailable."""
        ...


class Strays:
    """Looks for them. Two tasks for one log do no harm: the log's fence lets one engine have it."""

    def __init__(
        self,
        queue: Queue,
        presence: Presence,
        *,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._queue = queue
        self._presence = presence
        self._now_ms = now_ms

    async def look(self, tasks: Sequence[OpenTask]) -> None:
        """Send every stray to all. Raises BusUnavailable, StoreFull."""
        old = [found for found in tasks if self._is_old(found)]
        if not old:
            return
        there = await self._engines()
        for found in old:
            if (found.model_key, subjects.ordinal_of(found.subject)) not in there:
                await self._queue.send_to_all(found)
                await self._queue.remove(found.seq)
                log.warning("action=task_sent_to_all generation=%s", found.task.generation_id)

    def _is_old(self, found: OpenTask) -> bool:
        is_of_one = subjects.ordinal_of(found.subject) is not None
        return is_of_one and self._now_ms() - found.task.created_at_ms >= STRAY_MS

    async def _engines(self) -> set[tuple[str, int | None]]:
        values = (await self._presence.entries(subjects.presence_key("engine", "*"))).values()
        found = [presence for value in values if (presence := _presence(value)) is not None]
        return {
            (each.model_key, each.ordinal) for each in found if each.status in (LOADING, LOADED)
        }


def _presence(value: bytes) -> EnginePresence | None:
    try:
        return codec.decode(value, EnginePresence)
    except SchemaError:
        return None
