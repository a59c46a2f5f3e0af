"""What this engine may do with a task's log, and its claim on it. The log is the only judge."""

import asyncio
import logging
import time
from dataclasses import dataclass

from schemas import subjects
from schemas.errors import SERVER, UNAVAILABLE, LlamatapeError, Problem
from schemas.events import Claimed, Compat, Event, Failed
from schemas.generation import ChoiceTokens, Generation, apply_entry, collect
from schemas.rpc import DescribeSlots, SlotsDescription
from services.bus.connection import Bus
from services.bus.errors import NoResponder
from services.bus.log import LogWriter, last_entry, read_log
from services.bus.rpc import ask
from services.bus.tasks import Delivery
from services.engine.config import EngineSettings
from services.engine.pickup import Pickup, decide

log = logging.getLogger(__name__)

EMPTY_LOG_LOOKS = 10
EMPTY_LOG_WAIT_S = 0.02
WATCH_PART_OF_LEASE = 0.2
RETRY_AFTER_S = 1

PROBLEMS = {
    Pickup.EXPIRED: Problem(
        code=UNAVAILABLE,
        message="the deadline passed before an engine was free",
        retry_after_s=RETRY_AFTER_S,
    ),
    Pickup.POISON: Problem(
        code=SERVER, message="the request was given up: it stopped the engine three times in a row"
    ),
    Pickup.FOREIGN: Problem(
        code=SERVER, message="the model changed since this answer began; ask again"
    ),
    Pickup.ABANDONED: Problem(code=SERVER, message="the request was never completed"),
}


@dataclass(frozen=True, kw_only=True)
class Found:
    """A log as it was read, and what to do with it."""

    events: list[Event]
    state: Generation
    verdict: Pickup

    @property
    def is_suspect(self) -> bool:
        """Whether an engine or a decoder ended with it before it had brought a token."""
        return self.verdict is Pickup.RUN and self.state.claims_without_token > 0

    def collected(self) -> dict[int, ChoiceTokens]:
        return collect(self.events)


class Claims:
    """Reads logs, and claims or closes them. Event-loop thread. Methods raise what appends raise."""

    def __init__(
        self, bus: Bus, settings: EngineSettings, compat: Compat, writer: LogWriter, build: str
    ) -> None:
        self._bus = bus
        self._settings = settings
        self._compat = compat
        self._writer = writer
        self._build = build

    async def look(self, delivery: Delivery) -> Found:
        """The log of a task. May take a lease, where another engine has claimed it."""
        generation_id = delivery.task.generation_id
        events, state = await self._read_opened(generation_id)
        verdict = self._decide(delivery, state)
        if verdict is Pickup.WATCH:
            verdict = await self._watch(generation_id, state)
        return Found(events=events, state=state, verdict=verdict)

    async def claim(self, state: Generation, generation_id: str) -> Generation:
        """Append the claim; the state after it. From now on the log is ours to grow."""
        claimed = Claimed(
            attempt=state.attempt + 1,
            engine=self._settings.engine,
            host=self._settings.host,
            build=self._build,
            at_ms=_now_ms(),
        )
        after = await self._writer.append(state, generation_id, claimed)
        if after.attempt > 1:
            n_tokens = sum(after.n_tokens.values())
            log.warning(
                "action=failover generation=%s attempt=%d n_tokens=%d",
                generation_id,
                after.attempt,
                n_tokens,
            )
        return after

    async def close(self, generation_id: str, found: Found) -> None:
        """End a log that must not run."""
        problem = PROBLEMS[found.verdict]
        failed = Failed(problem=problem, by="engine", at_ms=_now_ms())
        await self._writer.append(found.state, generation_id, failed)
        log.warning("action=closed generation=%s reason=%s", generation_id, problem.message)

    async def is_closed(self, generation_id: str) -> bool:
        """Whether the leader's last entry ends that log. Raises BusUnavailable."""
        last = await last_entry(self._bus, generation_id)
        return last is not None and apply_entry(Generation(), last.seq, last.events).is_closed

    async def _read_opened(self, generation_id: str) -> tuple[list[Event], Generation]:
        """Events and state of a log; an empty one is looked at again for a while."""
        found = await self._read(generation_id)
        for _ in range(EMPTY_LOG_LOOKS):
            if found[1].last_seq:
                break
            await asyncio.sleep(EMPTY_LOG_WAIT_S)
            found = await self._read(generation_id)
        return found

    async def _read(self, generation_id: str) -> tuple[list[Event], Generation]:
        state = Generation()
        events: list[Event] = []
        for entry in await read_log(self._bus, generation_id):
            events += entry.events
            state = apply_entry(state, entry.seq, entry.events)
        return events, state

    def _decide(self, delivery: Delivery, state: Generation) -> Pickup:
        task = delivery.task
        return decide(
            state,
            engine=self._settings.engine,
            compat=self._compat,
            n_delivered=delivery.n_delivered,
            now_ms=_now_ms(),
            accept_until_ms=task.created_at_ms + task.accept_s * 1000,
        )

    async def _watch(self, generation_id: str, state: Generation) -> Pickup:
        """Another engine claimed this log: run it only if that one is gone, or silent for a lease."""
        lease_s = self._bus.settings.lease_s
        verdict = await self._ask_owner(generation_id, state.engine or "", lease_s)
        give_up_at = time.monotonic() + lease_s
        while verdict is Pickup.WATCH:
            await asyncio.sleep(lease_s * WATCH_PART_OF_LEASE)
            last = await last_entry(self._bus, generation_id)
            if last is None or last.seq != state.last_seq:
                return Pickup.LATER
            verdict = Pickup.RUN if time.monotonic() >= give_up_at else Pickup.WATCH
        return verdict

    async def _ask_owner(self, generation_id: str, engine: str, lease_s: float) -> Pickup:
        """RUN when the broker knows of no such engine, LATER when it is at work on this very log.
        One that does not answer (it may be stopped) must be watched."""
        subject = subjects.engine_rpc(self._settings.model_key, engine)
        timeout_s = lease_s * WATCH_PART_OF_LEASE
        try:
            found = await ask(
                self._bus, subject, DescribeSlots(), SlotsDescription, timeout_s=timeout_s
            )
        except NoResponder:
            return Pickup.RUN
        except LlamatapeError:
            return Pickup.WATCH
        running = {slot.generation_id for slot in found.slots if slot.is_processing}
        return Pickup.LATER if generation_id in running else Pickup.WATCH


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
