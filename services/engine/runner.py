"""Takes tasks, feeds the decoder, and keeps all runs of this engine."""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Callable, Coroutine
from typing import Protocol

from schemas.events import Compat, Released
from schemas.generation import ChoiceTokens
from schemas.params import RANDOM_SEED, Params
from schemas.rpc import Prepared
from services.bus.connection import Bus
from services.bus.errors import BusUnavailable, Fenced, LogClosed, StoreFull
from services.bus.log import LogWriter
from services.bus.task_queue import TaskQueue
from services.bus.tasks import Delivery
from services.engine.claims import Claims, Found
from services.engine.config import EngineSettings
from services.engine.gathering import Gathering
from services.engine.head_starts import HeadStarts
from services.engine.jobs import build_admit, draw_seeds, first_admit, n_choices
from services.engine.pickup import Pickup
from services.engine.protocol import Cancel, Command, Output
from services.engine.quarantine import Quarantine
from services.engine.run import Run
from services.engine.together import Expected, Together
from services.engine.upkeep import Pausable, Upkeep

log = logging.getLogger(__name__)

LATER_S = 0.5
RELEASE_S = 1.0
RESUME_S = 2.0
"""How long new tasks wait until what ran before the decoder died has been claimed anew."""
MAX_LOOKS = 3


class Decoder(Pausable, Protocol):
    """The part of DecoderProcess that is needed here."""

    def send(self, command: Command) -> None: ...


class Runner:
    """All generations that this engine works on. Event-loop thread only.

    on_forgotten: told of every generation that the decoder was told to drop. on_outputs: takes what
    the decoder said before its generation was claimed, else this runner's own does. is_alone: whether
    no other engine takes these tasks.
    """

    def __init__(
        self,
        bus: Bus,
        settings: EngineSettings,
        compat: Compat,
        decoder: Decoder,
        *,
        build: str,
        on_forgotten: Callable[[str], None] = lambda _: None,
        on_outputs: Callable[[tuple[Output, ...]], None] | None = None,
        is_alone: Callable[[], bool] = lambda: False,
    ) -> None:
        self._bus = bus
        self._settings = settings
        self._compat = compat
        self._decoder = decoder
        self._together = Together(decoder.send, self._is_worth_waiting)
        self._expected = Expected(settings.n_slots)
        self._is_alone = is_alone
        self.head_starts = HeadStarts(self._together.send, on_outputs or self.on_outputs)
        self._on_forgotten = on_forgotten
        self._writer = LogWriter(bus)
        self._gathering = Gathering()
        self._claims = Claims(bus, settings, compat, self._writer, build)
        self._runs: dict[str, Run] = {}
        self._pending: dict[str, Delivery] = {}
        self._poked: set[str] = set()
        self._quarantine = Quarantine(lambda: self._runs.values())
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._is_ready = asyncio.Event()  # there is a decoder
        self._is_open = asyncio.Event()  # and what is known to be harmless runs on it again
        self._n_openings = 0
        self._is_stopping = False

    @property
    def runs(self) -> dict[str, Run]:
        return self._runs

    @property
    def n_free_slots(self) -> int:
        n_pending = sum(delivery.task.n_slots for delivery in self._pending.values())
        return max(0, self._n_unclaimed - n_pending)

    @property
    def _n_unclaimed(self) -> int:
        """Slots for what is not claimed yet, begun or not."""
        n_slots = self._settings.n_slots
        return n_slots - sum(min(run.n_choices, n_slots) for run in self._runs.values())

    @property
    def is_busy(self) -> bool:
        """Whether the decoder has something to do."""
        return bool(self._runs) or self.head_starts.is_busy

    async def consume(self, queue: TaskQueue) -> None:
        """Fetch what the slots can take, until the drain."""
        while not self._is_stopping:
            if not self._is_open.is_set() or self.n_free_slots == 0:
                self._changed.clear()
                await queue.pause()
                await self._changed.wait()
                continue
            for delivery in await queue.fetch(self.n_free_slots):
                await self._pick_up(delivery)

    async def tick(self) -> None:
        """Look after all that runs, until cancelled."""
        await Upkeep(self._runs, self._pending, self._decoder, self._bus.settings.lease_s).run()

    def on_outputs(self, outputs: tuple[Output, ...]) -> None:
        """Hand each output to its run; of unknown generations (cancelled ones) nothing is kept."""
        for output in outputs:
            run = self._runs.get(getattr(output, "generation_id", ""))
            if run is not None:
                run.take(output)

    def on_decoder_ready(self) -> None:
        """(Re)start what was running when the decoder died, then take tasks."""
        self._is_ready.set()
        self._spawn(self._open())

    def on_decoder_gone(self) -> None:
        """The slots are gone; runs wait for the next decoder."""
        self._together.forget()
        self.head_starts.forget()
        self._is_ready.clear()
        self._is_open.clear()

    def on_prepare(self, n_following: int = 0) -> None:
        """Somebody asks what a request means; `on_prepared` follows. n_following: as in `Prepare`."""
        self._expected.add(n_following)

    def on_prepared(self, generation_id: str, prepared: Prepared | None) -> None:
        """That was answered, or refused (None). Its decoding begins at once where its task is sure to
        come here. generation_id: as in `Prepare`."""
        if prepared is None:
            self._expected.remove()
            self._flush_unless_worth_waiting()
        elif generation_id and self._may_begin(generation_id, prepared):
            self._expected.remove()
            seeds = _seeds(prepared.params, prepared.n_slots)
            replay = self._settings.failover_replay
            self.head_starts.begin(first_admit(generation_id, prepared, seeds, replay=replay))

    def on_poke(self, generation_id: str) -> None:
        """Somebody says that the log was ended: look, and stop if so."""
        if generation_id in self._runs:
            self._spawn(self._stop_if_closed(generation_id))
        elif generation_id in self._pending:
            self._poked.add(generation_id)
        else:
            self.head_starts.drop(generation_id)

    def stop_taking(self) -> None:
        """Take no more tasks; what comes all the same is sent back."""
        self._is_stopping = True
        self.head_starts.make_room(0)
        self._changed.set()

    async def drain(self, grace_s: float) -> None:
        """After `stop_taking`: let what runs end for at most `grace_s` seconds, give back the rest."""
        for generation_id, delivery in list(self._pending.items()):
            if generation_id not in self._runs:
                await delivery.nak()
        for task in list(self._tasks):
            task.cancel()
        if runs := list(self._runs.values()):
            log.info("action=draining n_runs=%d grace_s=%g", len(runs), grace_s)
            await self._wait_over(runs, grace_s)
        await asyncio.gather(*(self._release(run) for run in list(self._runs.values())))

    # --- picking up -------------------------------------------------------------------------

    async def _pick_up(self, delivery: Delivery) -> None:
        if self._is_stopping:
            await delivery.nak()
            return
        generation_id = delivery.task.generation_id
        if generation_id not in self.head_starts:
            self._expected.remove()
        run = self._runs.get(generation_id)
        if run is not None:  # our lease message was lost: the newer delivery is ours as well
            run.delivery = delivery
        elif generation_id in self._pending:
            self._pending[generation_id] = delivery
        else:
            self._pending[generation_id] = delivery
            self._spawn(self._start(generation_id))

    async def _start(self, generation_id: str) -> None:
        """Whatever becomes of a pending task; it is pending no more when this returns."""
        try:
            for _ in range(MAX_LOOKS):
                with contextlib.suppress(Fenced, LogClosed):  # somebody was first: look again
                    await self._start_pending(generation_id)
                    return
            await self._pending[generation_id].nak(LATER_S)
        except (BusUnavailable, StoreFull) as error:
            log.warning("action=pickup_failed generation=%s error=%s", generation_id, error)
            if delivery := self._pending.get(generation_id):
                await delivery.nak(LATER_S)
        finally:
            self._pending.pop(generation_id, None)
            self._poked.discard(generation_id)
            self._changed.set()
            if generation_id not in self._runs:
                self.head_starts.drop(generation_id)
            self._flush_unless_worth_waiting()

    async def _start_pending(self, generation_id: str) -> None:
        found = await self._claims.look(self._pending[generation_id])
        if not found.is_suspect:
            await self._carry_out(generation_id, found)
            return
        async with self._quarantine.turn(self._is_open):
            found = await self._claims.look(self._pending[generation_id])
            run = await self._carry_out(generation_id, found)
            if run is not None:
                await run.settled()

    async def _carry_out(self, generation_id: str, found: Found) -> Run | None:
        """What the verdict says; the run, if it is one."""
        delivery = self._pending[generation_id]
        match found.verdict:
            case Pickup.RUN:
                return await self._claim(generation_id, found)
            case Pickup.FORGET:
                await delivery.ack()
            case Pickup.LATER | Pickup.WATCH:
                is_elsewhere = found.state.engine is not None
                await delivery.nak(self._bus.settings.lease_s / 2 if is_elsewhere else LATER_S)
            case _:
                await self._claims.close(generation_id, found)
                await delivery.ack()
        return None

    async def _claim(self, generation_id: str, found: Found) -> Run:
        await self._is_ready.wait()
        self.head_starts.settle(found.state)
        state = await self._claims.claim(found.state, generation_id)
        collected = found.collected()
        run = Run(
            self._pending.pop(generation_id),
            state,
            collected,
            writer=self._writer,
            compat=self._compat,
            gathering=self._gathering,
            on_over=self._on_over,
        )
        self._runs[generation_id] = run
        self._admit(run, collected)
        if generation_id in self._poked:
            self._spawn(self._stop_if_closed(generation_id))
        return run

    def _may_begin(self, generation_id: str, prepared: Prepared) -> bool:
        """Not where the task was here before: a slow answer is asked for twice."""
        is_known = generation_id in self._runs or generation_id in self._pending
        is_ready = self._is_open.is_set() and not self._is_stopping and not is_known
        is_at_once = len(prepared.prompts) * prepared.params.n_cmpl == prepared.n_slots
        has_room = is_at_once and prepared.n_slots <= self._n_unclaimed - self.head_starts.n_slots
        is_free_to_choose = prepared.params.limits.id_slot < 0
        return is_ready and has_room and is_free_to_choose and self._is_alone()

    def _is_worth_waiting(self, n_held: int) -> bool:
        """Whether the decoder has nothing else to do, and others are about to come."""
        if len(self._runs) + len(self.head_starts) > n_held:
            return False
        is_coming = any(each not in self.head_starts for each in self._pending)
        return is_coming or bool(self._expected)

    def _flush_unless_worth_waiting(self) -> None:
        if not self._is_worth_waiting(len(self._runs) + len(self.head_starts)):
            self._together.flush()

    def _admit(self, run: Run, collected: dict[int, ChoiceTokens]) -> None:
        if self.head_starts.release(run.generation_id):
            return
        self.head_starts.make_room(self._n_unclaimed)
        seeds = _seeds(run.requested.params, n_choices(run.requested))
        replay = self._settings.failover_replay
        admit = build_admit(run.requested, collected, seeds, replay=replay)
        if admit is not None:  # else all choices have ended, and the run closes the log by itself
            self._together.send(admit)

    # --- running ----------------------------------------------------------------------------

    async def _open(self) -> None:
        """Continue on a new decoder: new attempts of the same engine. Those that have shown to be
        harmless go first; the suspects follow one by one."""
        self._n_openings += 1
        opening, runs = self._n_openings, list(self._runs.values())
        suspects = [run for run in runs if run.is_suspect]
        if harmless := [self._spawn(self._resume(run)) for run in runs if run not in suspects]:
            await asyncio.wait(harmless, timeout=RESUME_S)
        for run in suspects:
            self._spawn(self._resume(run))
        if opening == self._n_openings:
            self._is_open.set()
            self._changed.set()

    async def _resume(self, run: Run) -> None:
        if not await run.stop():
            return
        generation_id = run.generation_id
        if self._runs.get(generation_id) is run:
            del self._runs[generation_id]
            self._pending[generation_id] = run.delivery
            await self._start(generation_id)

    async def _stop_if_closed(self, generation_id: str) -> None:
        run = self._runs.get(generation_id)
        with contextlib.suppress(BusUnavailable):  # its next append is refused
            if run is not None and await self._claims.is_closed(generation_id):
                self._forget(run)
                await run.stop(0)
                await run.delivery.ack()

    async def _wait_over(self, runs: list[Run], grace_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                while any(self._runs.get(run.generation_id) is run for run in runs):
                    self._changed.clear()
                    await self._changed.wait()

    async def _release(self, run: Run) -> None:
        """Give a run back to the queue; what the decoder still says of it is not taken."""
        self._together.send(Cancel(generation_id=run.generation_id))
        try:
            async with asyncio.timeout(2 * RELEASE_S):
                if await run.stop(RELEASE_S):
                    released = Released(attempt=run.attempt, reason="drain")
                    await self._writer.append(run.state, run.generation_id, released)
                    await run.delivery.nak()
        except (Fenced, LogClosed, BusUnavailable, StoreFull, TimeoutError) as error:
            log.warning("action=release_failed generation=%s error=%r", run.generation_id, error)
        finally:
            self._runs.pop(run.generation_id, None)

    def _on_over(self, run: Run) -> None:
        """Called by a run that ended by itself; a fenced one may still be running in the decoder."""
        if not run.is_acked:
            self._spawn(self._acknowledge_if_closed(run))
        self._forget(run)

    async def _acknowledge_if_closed(self, run: Run) -> None:
        """A log that the command side closed is done; one that another engine took is not ours."""
        with contextlib.suppress(BusUnavailable):
            if await self._claims.is_closed(run.generation_id):
                await run.delivery.ack()

    def _forget(self, run: Run) -> None:
        if self._runs.get(run.generation_id) is run:
            del self._runs[run.generation_id]
            self._together.send(Cancel(generation_id=run.generation_id))
            self._on_forgotten(run.generation_id)
        self._changed.set()

    def _spawn(self, work: "Coroutine[object, object, None]") -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(_log_failure)
        return task


def _seeds(params: Params, n: int) -> tuple[int, ...]:
    return draw_seeds(params, n, tuple(secrets.randbelow(RANDOM_SEED) for _ in range(n)))


def _log_failure(task: "asyncio.Future[None]") -> None:
    if not task.cancelled() and task.exception() is not None:
        log.error("action=runner_failed", exc_info=task.exception())
