"""Batched Direct Get: many messages of one subject for one request, without a consumer."""

import asyncio
import json
from dataclasses import dataclass, field

import nats.errors
from nats.aio.msg import Msg

from services.bus.connection import Bus
from services.bus.errors import BusUnavailable
from services.bus.inbox import Inbox

BATCH = 512
BATCH_TIMEOUT_S = 5.0


@dataclass
class _Batch:
    """Replies to one request. has_more: resolved by the end-of-batch message."""

    has_more: asyncio.Future[bool]
    messages: list[Msg] = field(default_factory=list[Msg])


class DirectReader:
    """Reads stored messages in order. One inbox for all reads of a process."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._inbox = Inbox(bus, self._on_reply)
        self._batches: dict[str, _Batch] = {}
        bus.on_disconnect(self._fail_all)

    async def read(self, stream: str, subject: str, from_seq: int = 1) -> list[Msg]:
        """All stored messages of `subject` with a sequence ≥ from_seq, as one replica knows them.

        Their headers hold Nats-Sequence and Nats-Subject. Raises BusUnavailable.
        """
        found: list[Msg] = []
        while True:
            query: dict[str, object] = {
                "batch": BATCH,
                "seq": max(1, from_seq),
                "next_by_subj": subject,
            }
            batch = await self._read_batch(stream, query)
            found += batch.messages
            if not batch.has_more.result() or not batch.messages:
                return found
            from_seq = sequence_of(batch.messages[-1]) + 1

    async def _read_batch(self, stream: str, query: dict[str, object]) -> _Batch:
        try:
            token = await self._inbox.new_token()
            batch = _Batch(asyncio.get_running_loop().create_future())
            self._batches[token] = batch
            await self._send(stream, query, token, batch)
        except (TimeoutError, nats.errors.Error, OSError) as error:
            raise BusUnavailable(f"cannot read stream {stream}: {error!r}") from error
        return batch

    async def _send(self, stream: str, query: dict[str, object], token: str, batch: _Batch) -> None:
        try:
            target = f"$JS.API.DIRECT.GET.{stream}"
            reply = self._inbox.subject_of(token)
            await self._bus.nc.publish(target, json.dumps(query).encode(), reply=reply)
            async with asyncio.timeout(BATCH_TIMEOUT_S):
                await batch.has_more
        finally:
            self._batches.pop(token, None)

    def _on_reply(self, token: str, message: Msg) -> None:
        batch = self._batches.get(token)
        if batch is None or batch.has_more.done():
            return
        headers = message.headers or {}
        status = headers.get("Status")
        if status is None:
            batch.messages.append(message)
        elif status == "204":
            batch.has_more.set_result(headers.get("Nats-Num-Pending", "0") != "0")
        elif status == "404":
            batch.has_more.set_result(False)
        else:
            batch.has_more.set_exception(BusUnavailable(f"direct get answered {status}"))

    def _fail_all(self) -> None:
        for batch in self._batches.values():
            if not batch.has_more.done():
                batch.has_more.set_exception(BusUnavailable("the connection to the broker broke"))


def sequence_of(message: Msg) -> int:
    """Stream sequence of a message read by Direct Get or republished."""
    return int((message.headers or {})["Nats-Sequence"])
