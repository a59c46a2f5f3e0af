"""Tokens that follow each other faster than anybody reads are stored together. Event-loop thread only.

What an entry costs (the broker's store, its copies, a write to every reader) does not depend on how many
tokens it holds. All generations of an engine wait for the same moment, so that they share a write, too.
"""

import asyncio

GATHER_S = 0.004
"""No generation stores tokens more often than this; a stream of 250 tokens/s is not touched."""


class Gathering:
    """The next moment at which those that wait go on."""

    def __init__(self) -> None:
        self._moment: asyncio.Future[None] | None = None

    async def wait(self, rest_s: float) -> None:
        """Return in `rest_s` seconds, or earlier with others who came before."""
        moment = self._moment
        if moment is None:
            loop = asyncio.get_running_loop()
            moment = self._moment = loop.create_future()
            loop.call_later(rest_s, self._end)
        await asyncio.shield(moment)

    def _end(self) -> None:
        moment, self._moment = self._moment, None
        if moment is not None:
            moment.set_result(None)
