"""Logs wherever they are: on the broker while they are hot, else in the archive.

A log is read hot if its first event is there, else from the archive, else hot once more. What is read is
one or the other: a purged log may have left its last entry on the broker, and that alone is no log. One
that goes while it is followed (its reader was cut off for that long) is followed to its end in the archive.
"""

import asyncio
from collections.abc import Awaitable, Callable

from schemas.errors import LlamatapeError
from schemas.events import Requested
from services.bus.errors import LogPurged
from services.bus.log import Entry
from services.streams.logs import FollowedLog, Logs, OnEntry, OnLost

ReadArchive = Callable[[str], Awaitable[list[Entry] | None]]
"""All entries of an archived log, None where it is not archived. Raises what ArchiveClient.read does."""


class ArchivedLogs:
    """The logs of a platform. `hot`: those on the broker."""

    def __init__(self, hot: Logs, read_archive: ReadArchive) -> None:
        self._hot = hot
        self._read_archive = read_archive

    def follow(self, generation_id: str, on_entry: OnEntry, on_lost: OnLost) -> FollowedLog:
        return _Followed(self._hot, self._read_archive, generation_id, on_entry, on_lost)

    async def read(self, generation_id: str, after_seq: int = 0) -> list[Entry]:
        if after_seq:
            return await self._hot.read(generation_id, after_seq)
        if entries := await self._read_hot(generation_id):
            return entries
        archived = await self._read_archive(generation_id)
        return await self._read_hot(generation_id) if archived is None else archived

    async def last_entry(self, generation_id: str) -> Entry | None:
        """The hot one; an archived log has ended, and whoever asks for more than that reads it."""
        return await self._hot.last_entry(generation_id)

    async def poke(self, model_key: str, generation_id: str) -> None:
        await self._hot.poke(model_key, generation_id)

    async def _read_hot(self, generation_id: str) -> list[Entry]:
        try:
            entries = await self._hot.read(generation_id)
        except LogPurged:
            return []
        return entries if entries and _is_first(entries[0]) else []


class _Followed:
    """One log, followed on the broker or, where it is there no more, delivered from the archive."""

    def __init__(
        self,
        hot: Logs,
        read_archive: ReadArchive,
        generation_id: str,
        on_entry: OnEntry,
        on_lost: OnLost,
    ) -> None:
        self._hot = hot
        self._read_archive = read_archive
        self._generation_id = generation_id
        self._on_entry = on_entry
        self._on_lost = on_lost
        self._recovering: asyncio.Task[None] | None = None
        self._last_seq = 0
        self._live = self._follow()

    async def start(self, *, is_new: bool = False) -> None:
        """Raises what FollowedLog.start and ArchiveClient.read do."""
        if is_new:
            self._last_seq = -1
            await self._live.start(is_new=True)
        elif not await self._start_hot():
            await self._start_cold()

    async def _start_cold(self) -> None:
        archived = await self._read_archive(self._generation_id)
        await self._live.stop()
        if archived is None:
            self._live = self._follow()
            await self._start_hot()
        else:
            for entry in archived:
                self._deliver(entry)

    async def stop(self) -> None:
        if self._recovering is not None:
            self._recovering.cancel()
        await self._live.stop()

    def _follow(self) -> FollowedLog:
        return self._hot.follow(self._generation_id, self._take, self._recover_later)

    def _recover_later(self, lost: LlamatapeError) -> None:
        self._recovering = asyncio.create_task(self._recover(lost))

    async def _recover(self, lost: LlamatapeError) -> None:
        try:
            archived = await self._read_archive(self._generation_id)
        except LlamatapeError as error:
            self._on_lost(error)
            return
        if archived is None:
            self._on_lost(lost)
        for entry in archived or ():
            self._deliver(entry)

    async def _start_hot(self) -> bool:
        """Whether the log is on the broker, from its first event on to what is its last one now."""
        try:
            await self._live.start()
        except LogPurged:
            return False
        return self._last_seq != 0

    def _take(self, entry: Entry) -> None:
        if self._last_seq or _is_first(entry):
            self._deliver(entry)

    def _deliver(self, entry: Entry) -> None:
        """Entries that came before the broker's log went are the same in the archive."""
        if entry.seq > self._last_seq:
            self._last_seq = entry.seq
            self._on_entry(entry)


def _is_first(entry: Entry) -> bool:
    return bool(entry.events) and isinstance(entry.events[0], Requested)
