"""Publishing to JetStream with acknowledgements, without nats-py's `publish_async`.

(There, the futures of refused publishes never resolve.) One own inbox; one future per message.
"""

import asyncio
import json

import nats.errors
from nats.aio.msg import Msg

from services.bus.connection import Bus
from services.bus.errors import BusUnavailable
from services.bus.inbox import Inbox

ACK_TIMEOUT_S = 5.0


class PublishRefused(Exception):
    """JetStream did not store the message. code: its err_code (10071: wrong last sequence)."""

    def __init__(self, code: int, description: str) -> None:
        super().__init__(f"{description} ({code})")
        self.code = code


class AckPipe:
    """Pipelines publishes; several may be in flight. Event-loop thread only."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._inbox = Inbox(bus, self._on_ack)
        self._waiting: dict[str, asyncio.Future[int]] = {}
        bus.on_disconnect(self._fail_all)

    async def publish(self, subject: str, data: bytes, headers: dict[str, str]) -> int:
        """Store one message and return its stream sequence.

        Raises PublishRefused when the broker says no, BusUnavailable when it says nothing in time: it
        may then have been stored or not.
        """
        try:
            token = await self._inbox.new_token()
            future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            self._waiting[token] = future
            return await self._send(subject, data, headers, token, future)
        except (TimeoutError, nats.errors.Error, OSError) as error:
            raise BusUnavailable(f"no acknowledgement for {subject}: {error!r}") from error

    async def _send(
        self,
        subject: str,
        data: bytes,
        headers: dict[str, str],
        token: str,
        future: "asyncio.Future[int]",
    ) -> int:
        timer = asyncio.get_running_loop().call_later(ACK_TIMEOUT_S, _expire, future)
        try:
            reply = self._inbox.subject_of(token)
            await self._bus.nc.publish(subject, data, reply=reply, headers=headers)
            return await future
        finally:
            timer.cancel()
            self._waiting.pop(token, None)

    def _on_ack(self, token: str, message: Msg) -> None:
        future = self._waiting.pop(token, None)
        if future is None or future.done():
            return
        if message.headers and message.headers.get("Status") == "503":
            future.set_exception(BusUnavailable("no stream takes this subject"))
            return
        reply = json.loads(message.data)
        error = reply.get("error")
        if error is None:
            future.set_result(reply["seq"])
        else:
            code = int(error.get("err_code", 0))
            future.set_exception(PublishRefused(code, error.get("description", "")))

    def _fail_all(self) -> None:
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(BusUnavailable("the connection to the broker broke"))


def _expire(future: "asyncio.Future[int]") -> None:
    if not future.done():
        future.set_exception(TimeoutError())
