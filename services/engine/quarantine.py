"""One at a time: requests in whose company a decoder ended before they had brought a token.

One of them may be what ended it. Run alone, beside generations that have shown to be harmless, only the
guilty one counts another claim without a token when the decoder ends again.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Protocol


class Settling(Protocol):
    """A run, as far as it matters here."""

    async def settled(self) -> None: ...


class Quarantine:
    """The lane of suspects, first come, first served. running: all runs of the decoder at the moment."""

    def __init__(self, running: Callable[[], Iterable[Settling]]) -> None:
        self._running = running
        self._lane = asyncio.Lock()

    @contextlib.asynccontextmanager
    async def turn(self, is_open: asyncio.Event) -> AsyncGenerator[None]:
        """Inside, no other suspect runs, and what ran when the turn came has brought tokens.

        is_open: whether there is a decoder, and what is harmless runs on it.
        """
        async with self._lane:
            await self._until_settled(is_open)
            yield

    async def _until_settled(self, is_open: asyncio.Event) -> None:
        while True:
            await is_open.wait()
            await asyncio.gather(*(run.settled() for run in list(self._running())))
            if is_open.is_set():  # else the decoder ended meanwhile
                return
