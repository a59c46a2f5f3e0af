"""One generation while this engine works on it: its log's state, its outbox, its appends."""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Sequence

from schemas.errors import SERVER, Problem
from schemas.events import ChoiceEnd, ChoiceStart, Compat, Event, Failed, Requested
from schemas.generation import ChoiceTokens, Generation
from services.bus.errors import BusUnavailable, Fenced, LogClosed, MessageTooLarge, StoreFull
from services.bus.log import LogWriter
from services.bus.tasks import Delivery
from services.engine.gathering import GATHER_S, Gathering
from services.engine.jobs import n_choices
from services.engine.orders import Orders
from services.engine.outbox import Outbox, finished_event, halves, started_event
from services.engine.protocol import (
    Broken,
    ContextShifted,
    ControlTaken,
    Emitted,
    Ended,
    Output,
    PromptProgress,
    ReasoningEnded,
    SlotsStarted,
)

log = logging.getLogger(__name__)

OUTAGE_RETRY_S = 0.5
_TOO_LARGE = Problem(code=SERVER, message="one token of this answer is larger than the log keeps")


class Run:
    """Publishes what the decoder says of one generation. One append in flight at any time.

    on_over: called once, when the log is closed or lost to another writer; `is_acked` says which.
    Not called after `stop`, unless what was left to publish closed the log.
    """

    def __init__(
        self,
        delivery: Delivery,
        state: Generation,
        collected: dict[int, ChoiceTokens],
        *,
        writer: LogWriter,
        compat: Compat,
        gathering: Gathering,
        on_over: Callable[["Run"], None],
    ) -> None:
        """state: after the own claim was stored. collected: the tokens in its log."""
        assert state.requested is not None
        self.requested: Requested = state.requested
        self.generation_id = state.requested.generation_id
        self.n_choices = n_choices(self.requested)
        self.delivery = delivery
        self.state = state
        self.is_acked = False
        self.is_started = False
        self.last_append_at = time.monotonic()
        self._started_at = time.monotonic()
        self._writer = writer
        self._compat = compat
        self._gathering = gathering
        self._tokens_sent_at = -math.inf
        self._on_over = on_over
        self._ends: dict[int, ChoiceEnd] = {
            choice: tokens.end for choice, tokens in collected.items() if tokens.end is not None
        }
        self._outbox = Outbox(
            state.n_tokens, frozenset(range(self.n_choices)) - frozenset(self._ends)
        )
        self._problem: Problem | None = None
        self._orders = Orders()
        self._is_stopping = False
        self._settled = asyncio.Event()
        self._wake = asyncio.Event()
        self._task = asyncio.create_task(self._work())

    @property
    def attempt(self) -> int:
        return self.state.attempt

    @property
    def is_suspect(self) -> bool:
        """Whether this attempt has not brought a token yet: it may be what stops the decoder."""
        return self.state.claims_without_token > 0

    @property
    def n_unsent(self) -> int:
        """Tokens that the broker has not been given yet."""
        return self._outbox.n_unsent

    async def settled(self) -> None:
        """Return when this attempt has brought a token, or is over, or was stopped."""
        await self._settled.wait()

    def take(self, output: Output) -> None:
        """Note one output; it goes out with the next append. Nothing is taken once it stops."""
        if self._is_stopping:
            return
        match output:
            case Emitted():
                self._outbox.add_token(output)
            case ContextShifted():
                self._outbox.add_shifted(output)
            case ReasoningEnded():
                self._outbox.add_controlled(output)
            case ControlTaken():
                self._orders.on_taken(output.n_choices)
            case Ended():
                self._ends[output.end.choice] = output.end
                self._outbox.add_end(output)
            case SlotsStarted():
                self._take_started(output)
            case PromptProgress():
                self._take_progress(output)
            case Broken():
                self._problem = output.problem
            case _:
                return
        self._wake.set()

    async def order(self, send: Callable[[], None]) -> bool:
        """Give the decoder an order with `send`; True once what it changed is in the log, False where
        the attempt ended before."""
        if self._is_stopping or self._task.done():
            return False
        return await self._orders.give(send)

    def heartbeat(self) -> None:
        """Let readers know that the generation is alive though nothing happened."""
        self._outbox.add_heartbeat(int((time.monotonic() - self._started_at) * 1e6))
        self._wake.set()

    def fail(self, problem: Problem) -> None:
        """End the generation with `failed` after what is in the outbox."""
        self._problem = problem
        self._wake.set()

    async def stop(self, timeout_s: float | None = None) -> bool:
        """Publish what was taken, then nothing more; whether the log is open and ours after that.

        timeout_s: give up then; an append that is under way may then be stored or not.
        """
        self._is_stopping = True
        self._wake.set()
        self._settled.set()
        self._orders.close()
        done, _ = await asyncio.wait([self._task], timeout=timeout_s)
        if not done:
            self._task.cancel()
            await asyncio.wait([self._task])
        return bool(done) and self._task.result() and self.state.is_open

    def _take_started(self, output: SlotsStarted) -> None:
        self.is_started = True
        self._started_at = time.monotonic()
        at_ms = time.time_ns() // 1_000_000
        self._outbox.add_started(
            started_event(self.attempt, self._compat, output.choices, self.state.n_tokens, at_ms)
        )
        if self.requested.params.output.return_progress:
            for start in output.choices:
                self._outbox.add_progress(_not_begun(self.generation_id, start), is_shown=True)

    def _take_progress(self, output: PromptProgress) -> None:
        is_shown = self.requested.params.output.return_progress
        if is_shown or output.n_processed < output.n_total:
            self._outbox.add_progress(output, is_shown=is_shown)

    async def _work(self) -> bool:
        """False when the log was lost to somebody else."""
        is_ours = await self._is_published()
        self._settled.set()
        self._orders.close()
        if not is_ours or self.state.is_closed:
            self._on_over(self)
        return is_ours

    async def _is_published(self) -> bool:
        try:
            await self._publish()
        except (Fenced, LogClosed):
            log.info("action=run_fenced generation=%s", self.generation_id)
            return False
        except Exception:
            log.exception("action=run_failed generation=%s", self.generation_id)
            return False
        return True

    async def _publish(self) -> None:
        """Until the log is closed, or there is nothing left to say after `stop`."""
        while self.state.is_open:
            self._wake.clear()
            await self._gather()
            if events := self._next_events():
                await self._store(events)
            elif self._is_stopping:
                return
            else:
                await self._wake.wait()
        self.is_acked = True
        await self.delivery.ack()

    async def _gather(self) -> None:
        """Let tokens come together that follow the last ones at once; nothing else waits."""
        if not self._outbox.n_unsent:
            return
        now = time.monotonic()
        rest_s = self._tokens_sent_at + GATHER_S - now
        is_urgent = self._is_stopping or self._problem is not None or self._outbox.is_complete
        if rest_s > 0 and not is_urgent:
            await self._gathering.wait(rest_s)
            now += rest_s
        self._tokens_sent_at = now

    def _next_events(self) -> list[Event]:
        events = self._outbox.drain()
        at_ms = time.time_ns() // 1_000_000
        if self._problem is not None:
            events.append(Failed(problem=self._problem, by="engine", at_ms=at_ms))
        elif self._outbox.is_complete:
            n_per_prompt = self.requested.params.n_cmpl
            events.append(finished_event(self._ends, n_per_prompt, at_ms))
        return events

    async def _store(self, events: Sequence[Event]) -> None:
        """Append, in several entries if they do not fit into one (much came while no broker did)."""
        try:
            await self._append(events)
        except MessageTooLarge:
            if (parts := halves(events)) is None:
                at_ms = time.time_ns() // 1_000_000
                await self._append([Failed(problem=_TOO_LARGE, by="engine", at_ms=at_ms)])
                return
            for part in parts:
                await self._store(part)

    async def _append(self, events: Sequence[Event]) -> None:
        """Append, however long the broker is away or full: the same entry again, so it is stored once."""
        while True:
            try:
                self.state = await self._writer.append(self.state, self.generation_id, *events)
                break
            except (BusUnavailable, StoreFull) as error:
                log.warning("action=append_waits generation=%s error=%s", self.generation_id, error)
                await asyncio.sleep(OUTAGE_RETRY_S)
        self.last_append_at = time.monotonic()
        self._orders.on_stored(events)
        if not self.is_suspect:
            self._settled.set()


def _not_begun(generation_id: str, start: ChoiceStart) -> PromptProgress:
    """The first progress that a client sees: before any prompt token is decoded."""
    return PromptProgress(
        generation_id=generation_id,
        choice=start.choice,
        n_total=start.n_prompt,
        n_cached=start.n_cached,
        n_processed=start.n_cached,
        elapsed_us=0,
    )
