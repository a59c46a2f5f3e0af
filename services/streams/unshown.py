"""Conversations whose gateway died between opening a log and showing it, or before it cancelled what
that replaced.

Open generations are known from the work queue; each is looked at once. Whoever was to be replaced and
is still shown gives way; whoever is not shown, though something else is, has been replaced.
"""

import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from schemas import codec
from schemas.events import Cancelled, Requested
from schemas.generation import Generation, apply_entry
from schemas.tasks import ConversationEntry
from services.bus.errors import KeyConflict
from services.bus.keys import Keys, StoredValue
from services.bus.open_tasks import OpenTask
from services.streams.conversations import entry_of
from services.streams.ending import WRITER
from services.streams.logs import Logs

log = logging.getLogger(__name__)

UNSHOWN_MS = 5_000
"""So old is a generation whose gateway should have shown it."""
REPLACED = "replaced"


class Ender(Protocol):
    async def end(self, generation_id: str, event: Cancelled) -> bool:
        """Close that log, unless it is closed. Raises BusUnavailable, StoreFull."""
        ...


class Unshown:
    """Looks for them, in any number of processes: the key's revision lets one of them act."""

    def __init__(
        self,
        keys: Keys,
        logs: Logs,
        ender: Ender,
        *,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._keys = keys
        self._logs = logs
        self._ender = ender
        self._now_ms = now_ms
        self._seen: set[str] = set()

    async def look(self, tasks: Sequence[OpenTask]) -> None:
        """Let every conversation show what it should. Raises BusError."""
        self._seen &= {found.task.generation_id for found in tasks}
        for found in tasks:
            task = found.task
            is_old = self._now_ms() - task.created_at_ms >= UNSHOWN_MS
            if task.conversation and is_old and task.generation_id not in self._seen:
                with contextlib.suppress(KeyConflict):  # it changes at this moment: looked at again
                    await self._look(task.generation_id, task.conversation)
                    self._seen.add(task.generation_id)

    async def _look(self, generation_id: str, key: str) -> None:
        stored = await self._keys.get(key)
        shown = None if stored is None else codec.decode(stored.value, ConversationEntry)
        if shown is not None and shown.generation_id == generation_id:
            return
        requested = await self._open(generation_id)
        if requested is None:
            return
        shown_id = None if shown is None else shown.generation_id
        if shown_id in (None, requested.replaces):
            await self._show(key, requested, stored)
        ended_id = requested.replaces if shown_id in (None, requested.replaces) else generation_id
        if ended_id is not None:
            event = Cancelled(by=WRITER, reason=REPLACED, at_ms=self._now_ms())
            await self._ender.end(ended_id, event)

    async def _show(self, key: str, requested: Requested, over: StoredValue | None) -> None:
        value = codec.encode(entry_of(requested))
        if over is None:
            await self._keys.create(key, value)
        else:
            await self._keys.update(key, value, over.revision)
        log.warning("action=shown_late generation=%s", requested.generation_id)

    async def _open(self, generation_id: str) -> Requested | None:
        """What opened that log, unless it has ended."""
        state = Generation()
        for entry in await self._logs.read(generation_id):
            state = apply_entry(state, entry.seq, entry.events)
        return state.requested if state.is_open else None
