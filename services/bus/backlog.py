"""How many tasks of a model wait, known well enough to refuse more, without a question per request."""

import asyncio
import logging

from schemas.lanes import limit_of
from services.bus.connection import Bus
from services.bus.errors import BusUnavailable
from services.bus.tasks import queue_depth

log = logging.getLogger(__name__)

FRESH_S = 0.1
"""A refusal rests on a count that is younger than this."""
STALE_S = 1.0
"""An older count is renewed, though nothing seems full: other gateways send tasks too."""
SOON_S = 0.1
"""So long after a request the renewal begins, so that it costs that request nothing."""
NOTABLE = 0.25
"""Of the limit: from here on the count is renewed more often."""


class Backlog:
    """The tasks of one model that no engine has taken. Event-loop thread only.

    What this process sends is added to the last count until the next one, and so is what it has let
    in and not sent yet.
    """

    def __init__(self, bus: Bus, model_key: str, max_queue: int) -> None:
        """max_queue: how many may wait; 0 for any number."""
        self._bus = bus
        self._model_key = model_key
        self._max_queue = max_queue
        self._n_counted = 0
        self._n_sent = 0
        self._n_coming = 0
        self._counted_at = float("-inf")
        self._ordinals: set[int] = set()
        self._looking: asyncio.Task[None] | None = None

    async def has_room(self, lane: int) -> bool:
        """Whether one more task may enter `lane`; it is coming then, until `has_come`. Asks the broker
        only where the answer would be no, at most ten times a second. Raises BusUnavailable."""
        has_room = not self._max_queue or await self._has_room(lane)
        self._n_coming += has_room
        return has_room

    def has_come(self, *, is_sent: bool) -> None:
        """A task that was coming was sent, or will not be."""
        self._n_coming -= 1
        self._n_sent += is_sent

    async def _has_room(self, lane: int) -> bool:
        limit = limit_of(lane, self._max_queue)
        if self._estimate >= limit and self._age > FRESH_S:
            await asyncio.shield(self._look(0.0))
        if self._age > STALE_S or (self._age > FRESH_S and self._estimate >= limit * NOTABLE):
            self._look(SOON_S)
        return self._estimate < limit

    def note_ordinal(self, ordinal: int) -> None:
        """Count that engine's own queue too from now on."""
        self._ordinals.add(ordinal)

    def close(self) -> None:
        """Ask no more."""
        if self._looking is not None:
            self._looking.cancel()

    @property
    def _estimate(self) -> int:
        return self._n_counted + self._n_sent + self._n_coming

    @property
    def _age(self) -> float:
        return asyncio.get_running_loop().time() - self._counted_at

    def _look(self, delay_s: float) -> "asyncio.Task[None]":
        """Count, or wait for the count that is under way; a delayed one does not hold up another."""
        looking = self._looking
        if looking is None or looking.done() or (delay_s == 0 and looking.get_name() == "later"):
            if looking is not None:
                looking.cancel()
            name = "later" if delay_s else "now"
            looking = self._looking = asyncio.create_task(self._count(delay_s), name=name)
            looking.add_done_callback(lambda task: task.cancelled() or task.exception())
        return looking

    async def _count(self, delay_s: float) -> None:
        if delay_s:
            await asyncio.sleep(delay_s)
        n_before = self._n_sent
        try:
            self._n_counted = await queue_depth(self._bus, self._model_key, self._ordinals)
        except BusUnavailable as error:
            log.info("action=backlog_unknown error=%s", error)
            raise
        self._n_sent -= n_before
        self._counted_at = asyncio.get_running_loop().time()
