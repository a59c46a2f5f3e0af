"""One generation while this engine works on it: its log's state, its outbox, its appends."""

import asyncio
import logging
import time
from collections.abc import Callable

from schemas.errors import SERVER, Problem
from schemas.events import ChoiceEnd, Compat, Event, Failed, Requested
from schemas.generation import ChoiceTokens, Generation
from services.bus.errors import BusUnavailable, Fenced, LogClosed, MessageTooLarge, StoreFull
from services.bus.log import LogWriter
from services.bus.tasks import Delivery
from services.engine.jobs import n_choices
from services.engine.outbox import Outbox, finished_event, started_event
from services.engine.protocol import Broken, Emitted, Ended, Output, PromptProgress, SlotsStarted

log = logging.getLogger(__name__)

OUTAGE_RETRY_S = 0.5


class Run:
    """Publishes what the decoder says of one generation. One append in flight at any time.

    `is_over` is set when the log is closed or lost to another writer; `is_acked` says which.
    """

    def __init__(
        self,
        delivery: Delivery,
        state: Generation,
        collected: dict[int, ChoiceTokens],
        *,
        writer: LogWriter,
        compat: Compat,
        on_over: Callable[["Run"], None],
    ) -> None:
        """state: after the own claim was stored. collected: the tokens in its log."""
        assert state.requested is not None
        self.requested: Requested = state.requested
        self.generation_id = state.requested.generation_id
        self.n_slots = n_choices(self.requested)
        self.delivery = delivery
        self.state = state
        self.is_acked = False
        self.is_started = False
        self.last_append_at = time.monotonic()
        self._started_at = time.monotonic()
        self._writer = writer
        self._compat = compat
        self._on_over = on_over
        self._ends: dict[int, ChoiceEnd] = {
            choice: tokens.end for choice, tokens in collected.items() if tokens.end is not None
        }
        self._outbox = Outbox(
            state.n_tokens, frozenset(range(self.n_slots)) - frozenset(self._ends)
        )
        self._problem: Problem | None = None
        self._wake = asyncio.Event()
        self._task = asyncio.create_task(self._publish())

    @property
    def attempt(self) -> int:
        return self.state.attempt

    def take(self, output: Output) -> None:
        """Note one output; it goes out with the next append."""
        match output:
            case Emitted():
                self._outbox.add_token(output)
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

    def heartbeat(self) -> None:
        """Let readers know that the generation is alive though nothing happened."""
        self._outbox.add_heartbeat(int((time.monotonic() - self._started_at) * 1e6))
        self._wake.set()

    def fail(self, problem: Problem) -> None:
        """End the generation with `failed` after what is in the outbox."""
        self._problem = problem
        self._wake.set()

    def finish_if_complete(self) -> None:
        """Close a log whose choices had all ended before this attempt."""
        self._wake.set()

    async def stop(self) -> Generation:
        """Publish nothing more; returns the log's state as far as it is known."""
        self._task.cancel()
        await asyncio.wait([self._task])
        return self.state

    def _take_started(self, output: SlotsStarted) -> None:
        self.is_started = True
        self._started_at = time.monotonic()
        at_ms = time.time_ns() // 1_000_000
        self._outbox.add_started(
            started_event(self.attempt, self._compat, output.choices, self.state.n_tokens, at_ms)
        )

    def _take_progress(self, output: PromptProgress) -> None:
        is_shown = self.requested.params.output.return_progress
        if is_shown or output.n_processed < output.n_total:
            self._outbox.add_progress(output, is_shown=is_shown)

    async def _publish(self) -> None:
        try:
            while self.state.is_open:
                await self._wake.wait()
                self._wake.clear()
                if events := self._next_events():
                    await self._append(events)
            self.is_acked = True
            await self.delivery.ack()
        except (Fenced, LogClosed):
            log.info("action=run_fenced generation=%s", self.generation_id)
        except (MessageTooLarge, StoreFull) as error:
            log.error("action=run_unstorable generation=%s error=%s", self.generation_id, error)
        finally:
            if not self._task.cancelling():
                self._on_over(self)

    def _next_events(self) -> list[Event]:
        events = self._outbox.drain()
        at_ms = time.time_ns() // 1_000_000
        if self._problem is not None:
            events.append(Failed(problem=self._problem, by="engine", at_ms=at_ms))
        elif self._outbox.is_complete:
            n_per_prompt = self.requested.params.n_cmpl
            events.append(finished_event(self._ends, n_per_prompt, at_ms))
        return events

    async def _append(self, events: list[Event]) -> None:
        """Append, however long the broker is away: the same entry again, so it is stored once."""
        while True:
            try:
                self.state = await self._writer.append(self.state, self.generation_id, *events)
                self.last_append_at = time.monotonic()
                return
            except BusUnavailable as error:
                log.warning("action=append_waits generation=%s error=%s", self.generation_id, error)
                await asyncio.sleep(OUTAGE_RETRY_S)


def broken_problem(message: str) -> Problem:
    """A problem of the server's making."""
    return Problem(code=SERVER, message=message)
