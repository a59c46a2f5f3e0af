"""Answers readers of other processes: pieces of archived logs, as much as one message takes."""

import asyncio
import contextlib
from typing import TYPE_CHECKING

from schemas.errors import RequestError
from schemas.rpc import (
    ABSENT,
    DROPPED,
    ERASED,
    KEPT,
    ArchiveDescription,
    ArchivePiece,
    ArchiveQuestion,
    DescribeArchive,
)
from services.database.errors import DatabaseError

if TYPE_CHECKING:
    from services.streams.archive.store import ArchiveStore, Found

PIECE_BYTES = 512 * 1024
OPENING_S = 8.0
"""Whoever asks while the process starts waits so long for the database."""


class ArchiveDesk:
    """Answers once it is told of a store, or that there is none so far."""

    def __init__(self, max_message_bytes: int) -> None:
        self._piece_bytes = min(PIECE_BYTES, max_message_bytes // 2)
        self._store: ArchiveStore | None = None
        self._is_tried = asyncio.Event()

    def open(self, store: "ArchiveStore") -> None:
        """From now on there is a database."""
        self._store = store
        self._is_tried.set()

    def give_up(self) -> None:
        """There is none so far: nobody shall wait for it."""
        self._is_tried.set()

    async def answer(self, question: ArchiveQuestion) -> ArchivePiece | ArchiveDescription:
        """Raises RequestError while the database is away."""
        if self._store is None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(OPENING_S):
                    await self._is_tried.wait()
        if self._store is None:
            raise RequestError.unavailable("The archive's database is not there yet")
        try:
            if isinstance(question, DescribeArchive):
                return ArchiveDescription(n_archived=await self._store.count())
            found = await self._store.find(question.generation_id)
        except DatabaseError as error:
            raise RequestError.unavailable("The archive's database is away") from error
        return _piece(found, question.offset, self._piece_bytes)


def _piece(found: "Found | None", offset: int, n_bytes: int) -> ArchivePiece:
    if found is None:
        return ArchivePiece(state=ABSENT)
    if found.data is None:
        return ArchivePiece(state=ERASED if found.is_erased else DROPPED, caller=found.caller)
    return ArchivePiece(
        state=KEPT,
        caller=found.caller,
        codec=found.codec,
        data=found.data[offset : offset + n_bytes],
        n_bytes=len(found.data),
    )
