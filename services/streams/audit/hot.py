"""Erasure on the broker: the log, and the entry of the conversation that shows it."""

import contextlib
import logging
import time

from schemas.errors import NOT_FOUND, Problem
from schemas.events import Failed
from schemas.generation import Generation
from services.bus.connection import Bus
from services.bus.errors import Fenced, LogClosed
from services.bus.log import LogWriter
from services.bus.stored_logs import purge_log
from services.logs import event
from services.streams.audit.erasing import Erased
from services.streams.conversations import Conversations
from services.streams.ending import WRITER

log = logging.getLogger(__name__)

ERASED = "What this generation said was erased"


class HotLogs:
    """What the broker has of generations that are in the archive."""

    def __init__(self, bus: Bus, writer: LogWriter, conversations: Conversations) -> None:
        self._bus = bus
        self._writer = writer
        self._conversations = conversations

    async def erase(self, erased: Erased) -> None:
        """Take the log away and put an end of no content in its place, so that nobody opens it anew;
        and let its conversation show nothing. Idempotent. Raises BusUnavailable."""
        if erased.conversation is not None:
            await self._forget(erased.caller, erased.conversation, erased.generation_id)
        await purge_log(self._bus, erased.generation_id, keep_last=False)
        with contextlib.suppress(Fenced, LogClosed):
            await self._writer.append(Generation(), erased.generation_id, _tombstone())
        event(log, "erased", generation=erased.generation_id)

    async def _forget(self, caller: str, conversation: str, generation_id: str) -> None:
        entry = await self._conversations.find(caller, conversation)
        if entry is not None and entry.generation_id == generation_id:
            await self._conversations.remove(caller, conversation)


def _tombstone() -> Failed:
    problem = Problem(code=NOT_FOUND, message=ERASED)
    return Failed(problem=problem, by=WRITER, at_ms=time.time_ns() // 1_000_000)
