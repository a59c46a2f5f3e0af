"""Ending a log from the read side: a deleted conversation, a deadline that passed.

Readers never let a log grow; they may close it, and whoever loses an append obeys what is there.
"""

from collections.abc import Awaitable, Callable
from typing import Protocol

from schemas.events import Cancelled, Event, Failed
from schemas.generation import Generation, apply_entry
from services.bus.errors import Fenced, LogClosed
from services.bus.log import Entry
from services.streams.logs import Logs

WRITER = "streams"


class Writer(Protocol):
    """The part of services.bus.log.LogWriter that is needed here."""

    async def append(self, state: Generation, generation_id: str, *events: Event) -> Generation: ...


async def append_end(
    writer: Writer,
    last_entry: Callable[[str], Awaitable[Entry | None]],
    generation_id: str,
    state: Generation,
    event: Cancelled | Failed,
) -> bool:
    """Append until it is stored (True) or somebody else has ended the log. Raises what both raise.

    A running engine may be first several times; then its last entry is the next fence, and what lies
    between is not folded, since only the end and the sequence matter here.
    """
    while True:
        try:
            await writer.append(state, generation_id, event)
            return True
        except LogClosed:
            return False
        except Fenced:
            last = await last_entry(generation_id)
            if last is not None:
                state = apply_entry(state, last.seq, last.events)


class LogEnder:
    """Writes terminal events, and tells the engines to look."""

    def __init__(self, logs: Logs, writer: Writer) -> None:
        self._logs = logs
        self._writer = writer

    async def end(self, generation_id: str, event: Cancelled | Failed) -> bool:
        """Close that log with `event`; True if that was this call's doing, False if it was closed,
        or empty. Raises BusUnavailable, StoreFull."""
        state = Generation()
        for entry in await self._logs.read(generation_id):
            state = apply_entry(state, entry.seq, entry.events)
        if state.requested is None:
            return False
        last_entry = self._logs.last_entry
        if not await append_end(self._writer, last_entry, generation_id, state, event):
            return False
        await self._logs.poke(state.requested.model_key, generation_id)
        return True
