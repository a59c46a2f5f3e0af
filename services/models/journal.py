"""What the service has decided, on its way into the database: in order, nothing lost, nobody waits.

Serving must go on while the database is away or still being opened, so decisions take effect at
once and are written behind. A decision that cannot be written is tried again until it can.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from services.database.errors import DatabaseError
from services.logs import event
from services.models.catalog import ModelSpec, Registered
from services.models.downloads.receipts import Receipt
from services.models.files import FileFacts, FileIdentity
from services.models.lifecycle import Reason, Verdict

log = logging.getLogger(__name__)

MAX_PENDING = 10_000
HOLD_S = 3.0
FIRST_RETRY_S = 0.1
LAST_RETRY_S = 5.0

T = TypeVar("T")


class Records(Protocol):
    """The part of services.models.registry.Registry that is needed here. Raises DatabaseUnavailable."""

    async def register(self, spec: ModelSpec, file: FileIdentity, at_ms: int) -> Registered: ...
    async def learn(self, key: str, file: FileIdentity, facts: FileFacts) -> bool: ...
    async def record(self, key: str, verdict: Verdict, at_ms: int) -> bool: ...
    async def models(self) -> list[ModelSpec]: ...
    async def note_downloads(self, receipts: Sequence[Receipt]) -> None: ...
    async def close(self) -> None: ...


class Journal:
    """Writes verdicts behind. Event-loop thread."""

    def __init__(self, model_key: str) -> None:
        self._model_key = model_key
        self._pending: asyncio.Queue[tuple[Verdict, int]] = asyncio.Queue(MAX_PENDING)
        self._held: tuple[Verdict, int] | None = None
        self._holding: asyncio.TimerHandle | None = None

    def add(self, verdict: Verdict, at_ms: int) -> None:
        """Remember to write `verdict`, decided at that Unix time. With too many waiting it is dropped.

        A lost engine is held back for HOLD_S: if the whole is stopped meanwhile, that was why it went.
        """
        if verdict.reason is Reason.STOPPED:
            self._held = None
        self._let_go()
        if verdict.reason is Reason.ENGINE_LOST:
            self._held = (verdict, at_ms)
            self._holding = asyncio.get_running_loop().call_later(HOLD_S, self._let_go)
        else:
            self._put(verdict, at_ms)

    def _let_go(self) -> None:
        held, self._held = self._held, None
        if self._holding is not None:
            self._holding.cancel()
            self._holding = None
        if held is not None:
            self._put(*held)

    def _put(self, verdict: Verdict, at_ms: int) -> None:
        try:
            self._pending.put_nowait((verdict, at_ms))
        except asyncio.QueueFull:
            log.error(
                "action=history_dropped model_key=%s status=%s", self._model_key, verdict.status
            )

    async def run(self, records: Records) -> None:
        """Write what was and will be added; ends by cancellation only."""
        while True:
            verdict, at_ms = await self._pending.get()
            await insist(lambda v=verdict, at=at_ms: records.record(self._model_key, v, at))
            self._pending.task_done()

    async def flush(self, timeout_s: float) -> None:
        """Return when everything added is written, or after `timeout_s`."""
        self._let_go()
        try:
            async with asyncio.timeout(timeout_s):
                await self._pending.join()
        except TimeoutError:
            event(log, "history_unwritten", level=logging.ERROR, n=self._pending.qsize())


async def insist(work: Callable[[], Awaitable[T]]) -> T:
    """The result of `work`, tried again as long as it raises a DatabaseError."""
    delay_s = FIRST_RETRY_S
    while True:
        try:
            return await work()
        except DatabaseError as error:
            event(log, "database_retry", level=logging.WARNING, wait_s=delay_s, error=str(error))
        await asyncio.sleep(delay_s)
        delay_s = min(delay_s * 2, LAST_RETRY_S)
