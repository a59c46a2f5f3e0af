"""Requests with one reply each, for what is on the way of every answer.

nats-py's own put each reply into a queue and wake two tasks for it.
"""

import asyncio

import nats.errors

from services.bus import header
from services.bus.connection import Bus
from services.bus.errors import BusUnavailable
from services.bus.inbox import Inbox

NOBODY = b"503"


class Requests:
    """One inbox for all requests of a connection. Event-loop thread only."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._inbox = Inbox(bus, self._on_reply)
        self._waiting: dict[bytes, asyncio.Future[bytes]] = {}
        self._bound: set[bytes] = set()
        bus.on_disconnect(self._fail_all)

    async def ask(
        self, subject: str, data: bytes, timeout_s: float, *, is_patient: bool = False
    ) -> bytes:
        """The reply's data. is_patient: wait on though the connection breaks, as for one that asks again
        meanwhile. Raises NoRespondersError (nats) when nobody listens, TimeoutError, BusUnavailable."""
        try:
            async with asyncio.timeout(timeout_s):
                if not self._inbox.is_open:
                    await self._inbox.open()
                return await self._send(subject, data, is_patient)
        except nats.errors.NoRespondersError:
            raise
        except (nats.errors.Error, OSError) as error:
            if isinstance(error, TimeoutError):
                raise
            raise BusUnavailable(f"cannot ask on {subject}: {error!r}") from error

    async def _send(self, subject: str, data: bytes, is_patient: bool) -> bytes:
        token = self._inbox.new_token()
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[token] = future
        if not is_patient:
            self._bound.add(token)
        try:
            reply = self._inbox.subject_of(token)
            if not self._bus.nc.send(subject, reply, "", data):
                await self._bus.nc.publish(subject, data, reply=reply)
            return await future
        finally:
            self._waiting.pop(token, None)
            self._bound.discard(token)

    def _on_reply(self, token: bytes, headers: bytes, data: bytes) -> None:
        future = self._waiting.pop(token, None)
        if future is None or future.done():
            return
        if headers and not data and header.status(headers) == NOBODY:
            future.set_exception(nats.errors.NoRespondersError())
        else:
            future.set_result(data)

    def _fail_all(self) -> None:
        for token in self._bound:
            future = self._waiting.get(token)
            if future is not None and not future.done():
                future.set_exception(BusUnavailable("the connection to the broker broke"))
