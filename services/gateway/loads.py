"""Who has how much unfinished here: a caller that floods waits in a slower lane than the others."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from schemas import lanes
from schemas.events import Terminal
from services.bus.errors import BusError
from services.streams.hub import Hub
from services.streams.tape import Tape

CHECK_S = 10.0
UNSEEN_S = 30.0
"""What is older and followed by nobody here is looked up in its log."""


@dataclass(eq=False)
class Load:
    """One unfinished request. since: monotonic seconds. is_counted: until it is left."""

    caller: str
    lane: int
    since: float
    generation_id: str = ""
    is_counted: bool = True


@dataclass
class _Caller:
    """n: unfinished requests. lane: where the last one went."""

    n: int = 0
    lane: int = lanes.LIGHT


class CallerLoads:
    """Counts what this gateway let in, per caller, until its log ends. Event-loop thread only.

    Without keys nobody can be told from anybody, and all share one lane.
    """

    def __init__(self, hub: Hub, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._hub = hub
        self._clock = clock
        self._callers: dict[str, _Caller] = {}
        self._loads: dict[str, Load] = {}
        hub.when_done(self._on_done)

    def n_unfinished(self, caller: str) -> int:
        found = self._callers.get(caller)
        return 0 if found is None else found.n

    def enter(self, caller: str, priority: str) -> Load:
        """Count one more, from now on; its lane. To be kept, or left."""
        known = self._callers.setdefault(caller, _Caller())
        is_batch = priority == lanes.BATCH_CLASS
        if caller and not is_batch:
            known.lane = lanes.lane_of(known.n, known.lane)
        known.n += 1
        return Load(caller, lanes.BATCH if is_batch else known.lane, self._clock())

    def keep(self, load: Load, generation_id: str) -> None:
        """It is that generation from now on, and counts until that has ended."""
        if generation_id in self._loads:  # asked for twice under one key
            self.leave(load)
            return
        load.generation_id = generation_id
        self._loads[generation_id] = load

    def leave(self, load: Load) -> None:
        """It counts no more. Idempotent."""
        if not load.is_counted:
            return
        load.is_counted = False
        self._loads.pop(load.generation_id, None)
        known = self._callers[load.caller]
        known.n -= 1
        if not known.n:
            del self._callers[load.caller]

    async def watch(self) -> None:
        """Until cancelled: let go of those whose end nobody here has seen."""
        while True:
            await asyncio.sleep(CHECK_S)
            await self.check()

    async def check(self) -> None:
        """The same once. Never raises."""
        for load in list(self._loads.values()):
            is_old = self._clock() - load.since >= UNSEEN_S
            if is_old and self._hub.peek(load.generation_id) is None:
                await self._check(load)

    async def _check(self, load: Load) -> None:
        try:
            last = await self._hub.logs.last_entry(load.generation_id)
        except BusError:  # the next look tells
            return
        if last is None or any(isinstance(event, Terminal) for event in last.events):
            self.leave(load)

    def _on_done(self, tape: Tape) -> None:
        if (load := self._loads.get(tape.generation_id)) is not None:
            self.leave(load)
