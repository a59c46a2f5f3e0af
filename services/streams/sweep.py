"""Ends what is overdue and read by nobody: its gateway died, or no engine ever came.

Open generations are learned of from the work queue, which holds a task for each of them; no log is read
before its time is over. Any number of processes may sweep: the fence lets one of them end a log.
"""

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from schemas.errors import UNAVAILABLE, Problem
from schemas.events import Failed
from schemas.generation import Generation
from services.bus.errors import BusError, Fenced
from services.bus.open_tasks import OpenTask
from services.streams.deadline import MESSAGE, RETRY_AFTER_S
from services.streams.ending import WRITER, LogEnder, Writer
from services.streams.logs import Logs

log = logging.getLogger(__name__)

PERIOD_S = 5.0
MARGIN_MS = 2000
"""What readers and engines have to end it first."""
NEVER_OPENED = "the request was never completed"


class Queue(Protocol):
    """The work queue. Methods raise BusUnavailable."""

    async def open_tasks(self) -> list[OpenTask]: ...

    async def remove(self, seq: int) -> None: ...


class Helper(Protocol):
    """Sees to something else that a dead service may have left."""

    async def look(self, tasks: Sequence[OpenTask]) -> None:
        """tasks: all that are open. Raises BusError."""
        ...


class Sweep:
    """Looks through the work queue every few seconds. now_ms: Unix milliseconds."""

    def __init__(
        self,
        queue: Queue,
        logs: Logs,
        writer: Writer,
        *,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        period_s: float = PERIOD_S,
        helpers: Sequence[Helper] = (),
    ) -> None:
        self._queue = queue
        self._logs = logs
        self._writer = writer
        self._ender = LogEnder(logs, writer)
        self._now_ms = now_ms
        self._period_s = period_s
        self._helpers = helpers

    async def run(self) -> None:
        """Until cancelled. Several processes do not look at the same moment for long."""
        while True:
            await asyncio.sleep(self._period_s * random.uniform(0.8, 1.2))
            try:
                await self.once()
            except BusError as error:
                log.info("action=sweep_later error=%r", error)
            except Exception:
                log.exception("action=sweep_failed")

    async def once(self) -> None:
        """Look through the queue once. Raises BusError."""
        tasks = await self._queue.open_tasks()
        for helper in self._helpers:
            await helper.look(tasks)
        for found in tasks:
            if self._now_ms() >= _due_ms(found):
                with contextlib.suppress(
                    Fenced
                ):  # opened at this very moment: the next look ends it
                    await self._end(found)

    async def _end(self, found: OpenTask) -> None:
        """End that log if it is open, or was never opened. Its task has no purpose then."""
        generation_id = found.task.generation_id
        if await self._logs.last_entry(generation_id) is not None:
            is_ours = await self._fail(generation_id)
        elif self._now_ms() < _accept_until_ms(found):
            return
        else:
            is_ours = await self._refuse(generation_id)
        if is_ours:
            log.warning("action=swept generation=%s model=%s", generation_id, found.model_key)
        await self._queue.remove(found.seq)

    async def _fail(self, generation_id: str) -> bool:
        problem = Problem(code=UNAVAILABLE, message=MESSAGE, retry_after_s=RETRY_AFTER_S)
        failed = Failed(problem=problem, by=WRITER, at_ms=self._now_ms())
        return await self._ender.end(generation_id, failed)

    async def _refuse(self, generation_id: str) -> bool:
        """Close an empty log, so that a late gateway loses its append."""
        problem = Problem(code=UNAVAILABLE, message=NEVER_OPENED, retry_after_s=RETRY_AFTER_S)
        failed = Failed(problem=problem, by=WRITER, at_ms=self._now_ms())
        await self._writer.append(Generation(), generation_id, failed)
        return True


def _due_ms(found: OpenTask) -> int:
    """When that task should be gone. One without a deadline is of an older gateway: leave it."""
    return (found.task.deadline_at_ms or 2**63) + MARGIN_MS


def _accept_until_ms(found: OpenTask) -> int:
    return found.task.created_at_ms + found.task.accept_s * 1000 + MARGIN_MS
