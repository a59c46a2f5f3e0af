"""Which generation a conversation shows: one key per caller, conversation and model.

Only ids that the caller names and owns are ever answered; the caller is part of the key's hash.
"""

import asyncio
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from schemas import codec, subjects
from schemas.events import Requested, Terminal
from schemas.tasks import ConversationEntry
from services.bus.errors import KeyConflict
from services.bus.keys import Keys
from services.streams.errors import StreamGone
from services.streams.logs import Logs
from services.streams.tape import Tape, render

MAX_LOOKUPS_AT_ONCE = 16


class _Found(NamedTuple):
    entry: ConversationEntry
    revision: int


class Conversations:
    """The bucket of conversations. caller: key id, "" where no keys are asked for."""

    def __init__(self, keys: Keys, logs: Logs) -> None:
        self.keys = keys
        self._logs = logs

    async def swap(
        self, caller: str, conversation_id: str, entry: ConversationEntry
    ) -> ConversationEntry | None:
        """Let the conversation show `entry` from now on; what it showed before, if anything.

        The log of the new one must be open already. Raises BusUnavailable.
        """
        key = subjects.conversation_key(caller, conversation_id)
        while True:
            found = await self._get(key)
            try:
                await self._put(key, entry, found)
            except KeyConflict:
                continue
            return None if found is None else found.entry

    async def find(self, caller: str, conversation_id: str) -> ConversationEntry | None:
        """What the conversation shows. Raises BusUnavailable."""
        found = await self._get(subjects.conversation_key(caller, conversation_id))
        return None if found is None else found.entry

    async def remove(self, caller: str, conversation_id: str) -> None:
        """Forget the conversation; its log stays. Idempotent. Raises BusUnavailable."""
        await self.keys.delete(subjects.conversation_key(caller, conversation_id))

    async def lookup(self, caller: str, ids: Iterable[str]) -> list[ConversationEntry]:
        """Entries of these ids and of their `<id>::<model>` variants, in the order asked for.

        No log is read, except one whose end was never noted here. Raises BusUnavailable.
        """
        gate = asyncio.Semaphore(MAX_LOOKUPS_AT_ONCE)

        async def look(conversation_id: str) -> list[ConversationEntry]:
            async with gate:
                return await self._look(caller, conversation_id)

        found = await asyncio.gather(*(look(each) for each in dict.fromkeys(ids)))
        return [entry for entries in found for entry in entries]

    async def mark_done(
        self, caller: str, conversation_id: str, generation_id: str, *, n_bytes: int, at_s: int
    ) -> None:
        """Note that its stream is complete, if the conversation still shows that generation.

        n_bytes: of the whole stream. at_s: Unix seconds. Raises BusUnavailable.
        """
        key = subjects.conversation_key(caller, conversation_id)
        while (found := await self._get(key)) is not None:
            if found.entry.generation_id != generation_id or found.entry.is_done:
                return
            try:
                await self._put(key, _done(found.entry, n_bytes, at_s), found)
                return
            except KeyConflict:
                continue

    async def mark_tape_done(self, tape: Tape) -> None:
        """The same for a tape at its end; nothing if it shows no conversation."""
        requested, end = tape.requested, tape.generation.end
        if requested is None or end is None or requested.conversation is None:
            return
        await self.mark_done(
            requested.caller,
            requested.conversation,
            tape.generation_id,
            n_bytes=tape.n_bytes,
            at_s=(end.at_ms or requested.created_at_ms) // 1000,
        )

    async def _look(self, caller: str, conversation_id: str) -> list[ConversationEntry]:
        if "::" in conversation_id:
            entry = await self.find(caller, conversation_id)
            entries = [] if entry is None else [entry]
        else:
            pattern = subjects.conversation_variants(caller, conversation_id)
            values = await self.keys.entries(pattern)
            entries = [codec.decode(values[key], ConversationEntry) for key in sorted(values)]
        return [entry if entry.is_done else await self._checked(caller, entry) for entry in entries]

    async def _checked(self, caller: str, entry: ConversationEntry) -> ConversationEntry:
        """`entry`, completed if its log has ended without anybody here having seen it."""
        last = await self._logs.last_entry(entry.generation_id)
        if last is not None and not any(isinstance(event, Terminal) for event in last.events):
            return entry
        try:
            tape = render(entry.generation_id, await self._logs.read(entry.generation_id))
        except StreamGone:
            return entry
        await self.mark_tape_done(tape)
        return await self.find(caller, entry.conversation_id) or entry

    async def _get(self, key: str) -> _Found | None:
        stored = await self.keys.get(key)
        if stored is None:
            return None
        return _Found(codec.decode(stored.value, ConversationEntry), stored.revision)

    async def _put(self, key: str, entry: ConversationEntry, over: _Found | None) -> None:
        value = codec.encode(entry)
        if over is None:
            await self.keys.create(key, value)
        else:
            await self.keys.update(key, value, over.revision)


def entry_of(requested: Requested) -> ConversationEntry:
    """What the conversation of that generation shows while it runs."""
    return ConversationEntry(
        conversation_id=requested.conversation or "",
        generation_id=requested.generation_id,
        dialect=requested.dialect,
        render=requested.render,
        started_at_s=requested.created_at_ms // 1000,
    )


def _done(entry: ConversationEntry, n_bytes: int, at_s: int) -> ConversationEntry:
    return msgspec.structs.replace(entry, is_done=True, n_bytes=n_bytes, completed_at_s=at_s)
