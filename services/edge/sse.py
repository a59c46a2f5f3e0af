"""The response class of every event stream.

The stream has a task of its own: the request's sits under a dozen middlewares, and waking it means
going through all of them for every chunk. Nothing is created per chunk.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import cast

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

log = logging.getLogger(__name__)

OnDisconnect = Callable[[], Awaitable[None]]

STALL_S = 120.0
"""A client that takes nothing for so long, though there is something, is as good as gone."""


class SseResponse(Response):
    """Sends `chunks` as they come, one body message each; status 200, headers at once.

    chunks: whole SSE frames as bytes; closed in every case (`aclose`, if it has one). on_disconnect:
    awaited once, after that, if the client hung up before the last chunk was sent; not called when
    the server itself stops. stall_s: after so long without taking anything of what waits for it, a
    client counts as gone: what it has not read is held in memory only that long. Raises what `chunks` raises: the connection then ends without its last
    chunk, so that no client takes the answer for complete.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        chunks: AsyncIterator[bytes],
        *,
        on_disconnect: OnDisconnect | None = None,
        headers: dict[str, str] | None = None,
        stall_s: float = STALL_S,
    ) -> None:
        self.status_code = 200
        self.background = None
        self._chunks = chunks
        self._on_disconnect = on_disconnect
        self._is_complete = False
        self._stall_s = stall_s
        self._n_sent = 0
        self._is_sending = False
        # Named here, or else Starlette adds a charset, which llama-server does not send.
        own = {"content-type": "text/event-stream"}
        own |= {"cache-control": "no-cache", "x-accel-buffering": "no"}
        self.init_headers(own | (headers or {}))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the response (ASGI). scope is not looked at."""
        streaming = asyncio.create_task(self._stream(send))
        watching = asyncio.create_task(until_gone(receive))
        guard = _Guard(self, streaming, self._stall_s)
        try:
            await asyncio.wait((streaming, watching), return_when=asyncio.FIRST_COMPLETED)
        finally:
            guard.stop()
            streaming.cancel()
            watching.cancel()
            await asyncio.wait((streaming, watching))
            await self._close()
        if not streaming.cancelled():
            streaming.result()
        if not self._is_complete and self._on_disconnect is not None:
            await self._on_disconnect()

    async def _stream(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        async for chunk in self._chunks:
            self._is_sending = True
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
            self._is_sending = False
            self._n_sent += 1
        self._is_complete = True
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _close(self) -> None:
        if hasattr(self._chunks, "aclose"):
            await cast("AsyncGenerator[bytes, None]", self._chunks).aclose()

    @property
    def stuck_at(self) -> int | None:
        """The number of the chunk that the client does not take; None while it keeps up."""
        return self._n_sent if self._is_sending else None


class _Guard:
    """Ends a stream whose client has taken nothing since the last look. One timer, no task."""

    def __init__(
        self, response: SseResponse, streaming: "asyncio.Task[None]", period_s: float
    ) -> None:
        self._response, self._streaming, self._period_s = response, streaming, period_s
        self._stuck_at: int | None = None
        self._timer = self._later()

    def stop(self) -> None:
        self._timer.cancel()

    def _later(self) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(self._period_s, self._look)

    def _look(self) -> None:
        stuck_at = self._response.stuck_at
        if stuck_at is not None and stuck_at == self._stuck_at:
            log.info("action=reader_stalled seconds=%g", self._period_s)
            self._streaming.cancel()
            return
        self._stuck_at = stuck_at
        self._timer = self._later()


async def until_gone(receive: Receive) -> None:
    """Return when the client hangs up."""
    while (await receive())["type"] != "http.disconnect":
        pass
