"""Takes tasks, claims logs, feeds the decoder, and keeps all runs of this engine."""

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Awaitable

from schemas.errors import SERVER, UNAVAILABLE, Problem
from schemas.events import Claimed, Compat, Event, Failed, Released
from schemas.generation import ChoiceTokens, Generation, apply_entry, collect
from schemas.params import RANDOM_SEED
from services.bus.connection import Bus
from services.bus.errors import BusUnavailable, Fenced, LogClosed
from services.bus.log import LogWriter, last_entry, read_log
from services.bus.tasks import Delivery, TaskQueue
from services.engine.config import EngineSettings
from services.engine.decoder_process import DecoderProcess
from services.engine.jobs import build_admit, draw_seeds, n_choices
from services.engine.pickup import Pickup, decide
from services.engine.protocol import Cancel, Output
from services.engine.run import Run

log = logging.getLogger(__name__)

EMPTY_LOG_WAITS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1)
"""Between looks at a log that is still empty: its first entry comes right after the task."""
LATER_S = 0.5
WATCH_PART_OF_LEASE = 0.2
TICK_S = 0.25

_PROBLEMS = {
    Pickup.EXPIRED: Problem(
        code=UNAVAILABLE, message="the deadline passed before an engine was free"
    ),
    Pickup.POISON: Problem(
        code=SERVER, message="the request was given up: it stopped the engine three times in a row"
    ),
    Pickup.FOREIGN: Problem(
        code=SERVER, message="the model changed since this answer began; ask again"
    ),
    Pickup.ABANDONED: Problem(code=SERVER, message="the request was never completed"),
}


class Runner:
    """All generations that this engine works on. Event-loop thread only."""

    def __init__(
        self,
        bus: Bus,
        settings: EngineSettings,
        compat: Compat,
        decoder: DecoderProcess,
        *,
        build: str,
    ) -> None:
        self._bus = bus
        self._settings = settings
        self._compat = compat
        self._decoder = decoder
        self._build = build
        self._writer = LogWriter(bus)
        self._runs: dict[str, Run] = {}
        self._pending: dict[str, Delivery] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._is_open = False
        self._is_stopping = False

    @property
    def runs(self) -> dict[str, Run]:
        return self._runs

    @property
    def n_free_slots(self) -> int:
        n_taken = sum(run.n_slots for run in self._runs.values()) + len(self._pending)
        return max(0, self._settings.n_slots - n_taken)

    async def consume(self, queue: TaskQueue) -> None:
        """Fetch what the slots can take, until `stop`. Several queues may be consumed at once."""
        while not self._is_stopping:
            if not self._is_open or self.n_free_slots == 0:
                self._changed.clear()
                await self._changed.wait()
                continue
            for delivery in await queue.fetch(self.n_free_slots):
                self._pick_up(delivery)

    async def tick(self) -> None:
        """Renew leases and send heartbeats, until cancelled."""
        renew_s = self._bus.settings.lease_s / 3
        renewed_at = time.monotonic()
        while True:
            await asyncio.sleep(TICK_S)
            now = time.monotonic()
            self._send_heartbeats(now)
            if now - renewed_at >= renew_s:
                renewed_at = now
                for delivery in self._deliveries():
                    await delivery.in_progress()

    def on_outputs(self, outputs: tuple[Output, ...]) -> None:
        """Hand each output to its run; of unknown generations (cancelled ones) nothing is kept."""
        for output in outputs:
            run = self._runs.get(getattr(output, "generation_id", ""))
            if run is not None:
                run.take(output)

    def on_decoder_ready(self) -> None:
        """(Re)start what was running when the decoder died, then take tasks."""
        for run in list(self._runs.values()):
            self._spawn(self._resume(run))
        self._is_open = True
        self._changed.set()

    def on_decoder_gone(self) -> None:
        """The slots are gone; runs wait for the next decoder."""
        self._is_open = False

    def on_poke(self, generation_id: str) -> None:
        """Somebody says that the log was ended: look, and stop if so."""
        if generation_id in self._runs:
            self._spawn(self._stop_if_closed(generation_id))

    async def stop(self) -> None:
        """Give every run back to the queue and take no more."""
        self._is_stopping = True
        self._changed.set()
        for run in list(self._runs.values()):
            with contextlib.suppress(Fenced, LogClosed, BusUnavailable):
                await self._release(run)
        for task in list(self._tasks):
            task.cancel()
        for delivery in self._pending.values():
            await delivery.nak()

    # --- picking up -------------------------------------------------------------------------

    def _pick_up(self, delivery: Delivery) -> None:
        generation_id = delivery.task.generation_id
        run = self._runs.get(generation_id)
        if run is not None:  # our lease message was lost: the newer delivery is ours as well
            run.delivery = delivery
            return
        if generation_id in self._pending:
            self._pending[generation_id] = delivery
            return
        self._pending[generation_id] = delivery
        self._spawn(self._start(generation_id))

    async def _start(self, generation_id: str) -> None:
        try:
            await self._start_pending(generation_id)
        except (Fenced, LogClosed):
            # Somebody else was first. If the log is closed, the next delivery finds out.
            await self._pending[generation_id].nak(LATER_S)
        except BusUnavailable as error:
            log.warning("action=pickup_failed generation=%s error=%s", generation_id, error)
        finally:
            self._pending.pop(generation_id, None)
            self._changed.set()

    async def _start_pending(self, generation_id: str) -> None:
        events, state = await self._read_opened(generation_id)
        verdict = self._decide(self._pending[generation_id], state)
        if verdict is Pickup.WATCH:
            verdict = await self._watch(generation_id, state)
        delivery = self._pending[generation_id]
        match verdict:
            case Pickup.RUN:
                await self._claim(delivery, generation_id, state, collect(events))
            case Pickup.FORGET:
                await delivery.ack()
            case Pickup.LATER | Pickup.WATCH:
                await delivery.nak(LATER_S)
            case _:
                await self._close(delivery, generation_id, state, _PROBLEMS[verdict])

    async def _read_opened(self, generation_id: str) -> tuple[list[Event], Generation]:
        """Events and state of a log; an empty one is looked at again for a while."""
        found = await self._read(generation_id)
        for wait_s in EMPTY_LOG_WAITS_S:
            if found[1].last_seq:
                break
            await asyncio.sleep(wait_s)
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
            now_ms=time.time_ns() // 1_000_000,
            accept_until_ms=task.created_at_ms + task.accept_s * 1000,
        )

    async def _watch(self, generation_id: str, state: Generation) -> Pickup:
        """Another engine claimed this log: run it only if that one has fallen silent."""
        await asyncio.sleep(self._bus.settings.lease_s * WATCH_PART_OF_LEASE)
        last = await last_entry(self._bus, generation_id)
        is_silent = last is not None and last.seq == state.last_seq
        return Pickup.RUN if is_silent else Pickup.LATER

    async def _close(
        self, delivery: Delivery, generation_id: str, state: Generation, problem: Problem
    ) -> None:
        at_ms = time.time_ns() // 1_000_000
        failed = Failed(problem=problem, by="engine", at_ms=at_ms)
        await self._writer.append(state, generation_id, failed)
        await delivery.ack()
        log.warning("action=closed generation=%s reason=%s", generation_id, problem.message)

    async def _claim(
        self,
        delivery: Delivery,
        generation_id: str,
        state: Generation,
        collected: dict[int, ChoiceTokens],
    ) -> None:
        state = await self._writer.append(state, generation_id, self._claim_event(state))
        run = Run(
            self._pending.get(generation_id, delivery),
            state,
            collected,
            writer=self._writer,
            compat=self._compat,
            on_over=self._on_over,
        )
        self._runs[generation_id] = run
        if state.attempt > 1:
            log.warning(
                "action=failover generation=%s attempt=%d n_tokens=%d",
                generation_id,
                state.attempt,
                sum(state.n_tokens.values()),
            )
        self._admit(run, collected)

    def _claim_event(self, state: Generation) -> Claimed:
        return Claimed(
            attempt=state.attempt + 1,
            engine=self._settings.engine,
            host=self._settings.host,
            build=self._build,
            at_ms=time.time_ns() // 1_000_000,
        )

    def _admit(self, run: Run, collected: dict[int, ChoiceTokens]) -> None:
        n = n_choices(run.requested)
        random_seeds = tuple(secrets.randbelow(RANDOM_SEED) for _ in range(n))
        seeds = draw_seeds(run.requested.params, n, random_seeds)
        admit = build_admit(run.requested, collected, seeds)
        if admit is None:
            run.finish_if_complete()
        else:
            self._decoder.send(admit)

    # --- running ----------------------------------------------------------------------------

    async def _resume(self, run: Run) -> None:
        """Continue a run on a new decoder: a new attempt of the same engine, from the log."""
        generation_id = run.generation_id
        await run.stop()
        self._runs.pop(generation_id, None)
        self._pending[generation_id] = run.delivery
        await self._start(generation_id)

    async def _stop_if_closed(self, generation_id: str) -> None:
        try:
            last = await last_entry(self._bus, generation_id)
        except BusUnavailable:
            return
        run = self._runs.get(generation_id)
        if run is None or last is None:
            return
        if apply_entry(Generation(), last.seq, last.events).is_closed:
            self._forget(run)
            await run.stop()
            await run.delivery.ack()

    async def _release(self, run: Run) -> None:
        state = await run.stop()
        released = Released(attempt=run.attempt, reason="drain")
        await self._writer.append(state, run.generation_id, released)
        await run.delivery.nak()

    def _on_over(self, run: Run) -> None:
        """Called by a run that ended by itself; a fenced one may still be running in the decoder."""
        if not run.is_acked:
            self._spawn(self._acknowledge_if_closed(run))
        self._forget(run)

    async def _acknowledge_if_closed(self, run: Run) -> None:
        """A log that the command side closed is done; one that another engine took is not ours."""
        with contextlib.suppress(BusUnavailable):
            last = await last_entry(self._bus, run.generation_id)
            if last is not None and apply_entry(Generation(), last.seq, last.events).is_closed:
                await run.delivery.ack()

    def _forget(self, run: Run) -> None:
        if self._runs.get(run.generation_id) is run:
            del self._runs[run.generation_id]
        self._decoder.send(Cancel(generation_id=run.generation_id))
        self._changed.set()

    def _send_heartbeats(self, now: float) -> None:
        for run in self._runs.values():
            output = run.requested.params.output
            is_due = now - run.last_append_at >= output.sse_ping_interval > 0
            if run.is_started and is_due and output.stream:
                run.last_append_at = now
                run.heartbeat()

    def _deliveries(self) -> list[Delivery]:
        return [*(run.delivery for run in self._runs.values()), *self._pending.values()]

    def _spawn(self, work: "Awaitable[None]") -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(_log_failure)


def _log_failure(task: "asyncio.Future[None]") -> None:
    if not task.cancelled() and task.exception() is not None:
        log.error("action=runner_failed", exc_info=task.exception())
