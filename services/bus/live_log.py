"""Following one log: history first, then live, without a gap and without a consumer.

Live entries come republished after storing, each with the sequence of the entry before it. A break
in that chain is filled from history. A missed last entry breaks nothing, so after some silence, then
after twice as much …, and after every reconnect, the leader is asked. A log that went meanwhile (it has
ended then, and the archive has it) is reported once.
"""

import asyncio
import logging
from collections.abc import Callable

from nats.aio.subscription import Subscription

from schemas import subjects
from schemas.errors import SchemaError
from schemas.events import Terminal, decode_entry
from services.bus import header
from services.bus.connection import Bus, unsubscribe
from services.bus.errors import BusUnavailable, LogPurged
from services.bus.log import Entry, read_pieces

log = logging.getLogger(__name__)

SILENCE_S = 1.0
MAX_SILENCES = 8
"""What stays silent is asked after less and less often, down to once in so many silences: hundreds of
generations may wait for their turn."""


class LiveLog:
    """Calls `on_entry` for every entry of one log, in order, exactly once, until `stop`.

    on_lost: called once if the log leaves the broker after `start`, before its end was delivered.
    Neither may block or raise; they are called in the event-loop thread.
    """

    def __init__(
        self,
        bus: Bus,
        generation_id: str,
        on_entry: Callable[[Entry], None],
        on_lost: Callable[[LogPurged], None] | None = None,
        *,
        silence_s: float = SILENCE_S,
    ) -> None:
        self._bus = bus
        self._generation_id = generation_id
        self._on_entry = on_entry
        self._on_lost = on_lost
        self._silence_s = silence_s
        self._n_silences = 1
        self._last_seq = 0
        self._early: list[Entry] = []
        self._subscription: Subscription | None = None
        self._is_filling = False
        self._fill_task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_silent = False
        self._is_over = False
        self._forget_reconnect: Callable[[], None] | None = None

    async def start(self, *, is_new: bool = False, after_seq: int = 0) -> None:
        """Subscribe; then read history, unless `is_new` says that nothing can be stored yet.

        after_seq: sequence of the last entry that the caller has already. Raises BusUnavailable,
        LogPurged.
        """
        self._last_seq = after_seq
        subject = subjects.live(self._generation_id)
        self._subscription = await self._bus.nc.subscribe_direct(subject, self._receive)
        self._bus.counters.n_live += 1
        self._forget_reconnect = self._bus.on_reconnect(self._fill_later)
        self._arm()
        if not is_new:
            await self._bus.flush()
            await self._fill()

    async def stop(self) -> None:
        """Unsubscribe. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
        if self._forget_reconnect is not None:
            self._forget_reconnect()
        if self._fill_task is not None:
            self._fill_task.cancel()
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            self._bus.counters.n_live -= 1
            await unsubscribe(subscription)

    def _receive(self, _subject: bytes, headers: bytes, data: bytes) -> None:
        try:
            entry = Entry(
                header.number(headers, "Nats-Sequence"),
                header.number(headers, "Nats-Last-Sequence"),
                decode_entry(data),
                data,
            )
        except (KeyError, SchemaError):
            log.exception("action=live_entry_unreadable generation=%s", self._generation_id)
            return
        self._take_live(entry)

    def _take_live(self, entry: Entry) -> None:
        if entry.seq <= self._last_seq:
            return
        if not self._is_filling and entry.previous_seq == self._last_seq:
            self._deliver(entry)
        else:
            self._early.append(entry)
            self._fill_later()

    def _deliver(self, entry: Entry) -> None:
        self._last_seq = entry.seq
        self._is_silent = False
        self._is_over = bool(entry.events) and isinstance(entry.events[-1], Terminal)
        if self._n_silences > 1:
            self._n_silences = 1
            self._arm()
        self._on_entry(entry)

    def _fill_later(self) -> None:
        if not (self._is_filling or self._is_over or self._subscription is None):
            self._is_filling = True
            self._fill_task = asyncio.create_task(self._fill_in_background())

    async def _fill_in_background(self) -> None:
        before_seq = self._last_seq
        try:
            await self._fill()
            self._bus.counters.n_gaps += self._last_seq != before_seq
        except LogPurged as error:
            self._lose(error)
        except BusUnavailable as error:
            log.warning("action=fill_failed generation=%s error=%s", self._generation_id, error)
        except SchemaError:
            log.exception("action=log_unreadable generation=%s", self._generation_id)

    async def _fill(self) -> None:
        self._is_filling = True
        try:
            async for piece in read_pieces(self._bus, self._generation_id, self._last_seq):
                for entry in piece:
                    self._deliver_next(entry)
        finally:
            for entry in self._early:
                self._deliver_next(entry)
            self._early = []
            self._is_filling = False

    def _lose(self, error: LogPurged) -> None:
        if not self._is_over:
            self._is_over = True
            if self._on_lost is not None:
                self._on_lost(error)

    def _deliver_next(self, entry: Entry) -> None:
        if entry.seq > self._last_seq and entry.previous_seq <= self._last_seq:
            self._deliver(entry)

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._is_silent = True
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._silence_s * self._n_silences, self._on_timer)

    def _on_timer(self) -> None:
        if self._subscription is None or self._is_over:
            return
        if self._is_silent and self._bus.is_connected:
            self._n_silences = min(2 * self._n_silences, MAX_SILENCES)
            self._fill_later()
        self._arm()
