"""Copies ended logs into the archive, soon after a hint says that they ended.

A hint is acknowledged after the transaction that archived its log, and what is archived already is left
alone, so archivers may die and be many. Hints that were lost do no harm: see sweep.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from schemas.events import Requested
from services.bus.errors import BusError
from services.bus.log import Entry
from services.logs import event
from services.streams.archive.summary import Record, record_of
from services.streams.archive.writing import RecordWriter

log = logging.getLogger(__name__)

BATCH = 32
"""Logs in one transaction."""
READS_AT_ONCE = 4
BIG_BYTES = 64 * 1024
"""A log of this size is packed on a thread, since that takes milliseconds."""
RETRY_S = 1.0


class Hint(Protocol):
    """That a generation has ended."""

    generation_id: str

    async def ack(self) -> None: ...

    async def nak(self, delay_s: float) -> None: ...


class Hints(Protocol):
    """The queue of hints, shared by all archivers."""

    async def fetch(self, n: int) -> Sequence[Hint]:
        """Up to n; waits a moment for the first one."""
        ...


ReadLog = Callable[[str], Awaitable[list[Entry]]]
"""A log as the broker has it. Raises BusError, SchemaError."""
FileDigest = Callable[[str], Awaitable[str]]
"""sha256 of a model's file by model key, empty where it is not known. Raises BusError."""


class Archiver:
    """Archives logs in batches. now_ms: Unix milliseconds."""

    def __init__(
        self,
        writer: RecordWriter,
        read_log: ReadLog,
        file_digest: FileDigest,
        now_ms: Callable[[], int],
    ) -> None:
        self._writer = writer
        self._read_log = read_log
        self._file_digest = file_digest
        self._now_ms = now_ms

    async def run(self, hints: Hints) -> None:
        """Follow the hints; ends by cancellation only."""
        while True:
            try:
                await self.take(await hints.fetch(BATCH))
            except Exception:
                log.exception("action=archive_failed")
                await asyncio.sleep(RETRY_S)

    async def take(self, hints: Sequence[Hint]) -> None:
        """Archive what they speak of, then acknowledge them; those of a broker that is away come again."""
        try:
            await self.archive([hint.generation_id for hint in hints])
        except BusError as error:
            event(log, "archive_later", level=logging.DEBUG, n=len(hints), error=str(error))
            for hint in hints:
                await hint.nak(RETRY_S)
            return
        for hint in hints:
            await hint.ack()

    async def archive(self, generation_ids: Sequence[str]) -> int:
        """Archive those of them that have ended; how many were not archived before. Waits for a
        database that is away. Raises BusError."""
        wanted = list(dict.fromkeys(generation_ids))
        wanted = [each for each in wanted if not self._writer.is_refused(each)]
        n_new = 0
        for first in range(0, len(wanted), BATCH):
            n_new += await self._writer.write(await self._build(wanted[first : first + BATCH]))
        return n_new

    async def _build(self, generation_ids: Sequence[str]) -> list[Record]:
        gate = asyncio.Semaphore(READS_AT_ONCE)

        async def build(generation_id: str) -> Record | None:
            async with gate:
                return await self._record(generation_id)

        built = await asyncio.gather(*(build(each) for each in generation_ids))
        return [record for record in built if record is not None]

    async def _record(self, generation_id: str) -> Record | None:
        """None for a log that has not ended, that was never opened, or that nobody can read."""
        try:
            return await self._make(generation_id)
        except BusError:
            raise
        except Exception as error:  # whatever is wrong with one log must not hold up the others
            self._writer.refuse(generation_id, error)
            return None

    async def _make(self, generation_id: str) -> Record | None:
        entries = await self._read_log(generation_id)
        digest = await self._file_digest(_model_key(entries))

        def make() -> Record | None:
            return record_of(entries, archived_at_ms=self._now_ms(), model_digest=digest)

        n_bytes = sum(len(entry.data) for entry in entries)
        return await asyncio.to_thread(make) if n_bytes > BIG_BYTES else make()


def _model_key(entries: Sequence[Entry]) -> str:
    first = entries[0].events[0] if entries and entries[0].events else None
    return first.model_key if isinstance(first, Requested) else ""
