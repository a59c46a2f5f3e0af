"""Which generations that count as running are over: their gateway died, and nobody said so."""

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from schemas.events import Terminal
from schemas.generation import Generation, apply_entry
from services.gateway.limits.verdict import generation_of
from services.streams.errors import StreamsError
from services.streams.logs import Logs

AT_ONCE = 16
NEVER_OPENED_MS = 60_000
"""A log that is empty for so long will stay so: its gateway died before it was opened."""


class Found(NamedTuple):
    """A place whose generation is over. n_generated: tokens of all its choices."""

    place: str
    n_generated: int


class EndedLogs:
    """Looks into logs."""

    def __init__(self, logs: Logs) -> None:
        self._logs = logs
        self._gate = asyncio.Semaphore(AT_ONCE)

    async def among(self, since_ms: Mapping[str, int], now_ms: int) -> list[Found]:
        """Those of these places whose generations are over. since_ms: when each was admitted. Raises
        BusUnavailable."""
        looks = [self._look(each, now_ms - since) for each, since in since_ms.items()]
        return [found for found in await asyncio.gather(*looks) if found is not None]

    async def _look(self, place: str, age_ms: int) -> Found | None:
        generation_id = generation_of(place)
        async with self._gate:
            last = await self._logs.last_entry(generation_id)
            if last is None:
                return Found(place, 0) if age_ms >= NEVER_OPENED_MS else None
            if not any(isinstance(event, Terminal) for event in last.events):
                return None
            return Found(place, await self._n_generated(generation_id))

    async def _n_generated(self, generation_id: str) -> int:
        """0 where what was said is not kept any more."""
        state = Generation()
        try:
            entries = await self._logs.read(generation_id)
        except StreamsError:
            return 0
        for entry in entries:
            state = apply_entry(state, entry.seq, entry.events)
        return sum(state.n_tokens.values())
