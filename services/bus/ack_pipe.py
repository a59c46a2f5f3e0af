"""Publishing to JetStream with acknowledgements, without nats-py's `publish_async`.

(There, the futures of refused publishes never resolve.) One own inbox; one future per message.
"""

import asyncio
from typing import Any, NamedTuple

import nats.errors
import orjson

from services.bus import header
from services.bus.connection import Bus
from services.bus.errors import BusUnavailable
from services.bus.inbox import Inbox

ACK_TIMEOUT_S = 5.0
LOOK_S = 0.5
"""How often those that have waited too long are looked for."""


class PublishRefused(Exception):
    """JetStream did not store the message. code: its err_code (10071: wrong last sequence)."""

    def __init__(self, code: int, description: str) -> None:
        super().__init__(f"{description} ({code})")
        self.code = code


class _Waiting(NamedTuple):
    """One publish without an answer. until: seconds of the loop's clock."""

    future: "asyncio.Future[int]"
    until: float


class AckPipe:
    """Pipelines publishes; several may be in flight. Event-loop thread only."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._inbox = Inbox(bus, self._on_ack)
        self._waiting: dict[bytes, _Waiting] = {}
        self._is_looking = False
        bus.on_disconnect(self._fail_all)

    async def publish(self, subject: str, data: bytes, headers: dict[str, str]) -> int:
        """Store one message and return its stream sequence.

        Raises PublishRefused when the broker says no, BusUnavailable when it says nothing in time: it
        may then have been stored or not.
        """
        try:
            if not self._inbox.is_open:
                await self._inbox.open()
            return await self._send(subject, data, headers)
        except (TimeoutError, nats.errors.Error, OSError) as error:
            raise BusUnavailable(f"no acknowledgement for {subject}: {error!r}") from error

    async def _send(self, subject: str, data: bytes, headers: dict[str, str]) -> int:
        loop = asyncio.get_running_loop()
        token = self._inbox.new_token()
        future: asyncio.Future[int] = loop.create_future()
        self._waiting[token] = _Waiting(future, loop.time() + ACK_TIMEOUT_S)
        if not self._is_looking:
            self._look_later(loop)
        try:
            reply = self._inbox.subject_of(token)
            lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
            if not self._bus.nc.send(subject, reply, lines, data):
                await self._bus.nc.publish(subject, data, reply=reply, headers=headers)
            return await future
        finally:
            self._waiting.pop(token, None)

    def _on_ack(self, token: bytes, headers: bytes, data: bytes) -> None:
        waiting = self._waiting.pop(token, None)
        if waiting is None or waiting.future.done():
            return
        if headers and header.status(headers) == b"503":
            waiting.future.set_exception(BusUnavailable("no stream takes this subject"))
            return
        reply: dict[str, Any] = orjson.loads(data)
        error = reply.get("error")
        if error is None:
            waiting.future.set_result(reply["seq"])
        else:
            code = int(error.get("err_code", 0))
            waiting.future.set_exception(PublishRefused(code, error.get("description", "")))

    def _fail_all(self) -> None:
        for waiting in self._waiting.values():
            if not waiting.future.done():
                error = BusUnavailable("the connection to the broker broke")
                waiting.future.set_exception(error)

    def _look_later(self, loop: asyncio.AbstractEventLoop) -> None:
        self._is_looking = True
        loop.call_later(LOOK_S, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """End the wait of those whose time is over; a timer for each would cost more than its publish."""
        now = loop.time()
        for future, until in list(self._waiting.values()):
            if until > now:
                break  # the later ones came later
            if not future.done():
                future.set_exception(TimeoutError())
        self._is_looking = bool(self._waiting)
        if self._is_looking:
            self._look_later(loop)
