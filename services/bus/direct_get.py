"""Batched Direct Get: many messages of one subject for one request, without a consumer."""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import nats.errors

from services.bus import header
from services.bus.connection import Bus
from services.bus.errors import BusUnavailable
from services.bus.inbox import Inbox

FIRST_BATCH, BATCH = 64, 512
BATCH_TIMEOUT_S = 5.0
SHORT_BYTES = 16 * 1024 * 1024
"""The broker cuts a batch short at 64 MB; one that is short below this is so because messages went."""


class Shrunk(Exception):
    """Messages that were there are not, by this replica. n_left: how many should follow what was read."""

    def __init__(self, n_left: int) -> None:
        super().__init__(f"{n_left} messages are missing")
        self.n_left = n_left


class Stored(NamedTuple):
    """One stored message. headers: its header block, which holds Nats-Sequence and Nats-Subject."""

    headers: bytes
    data: bytes

    @property
    def seq(self) -> int:
        """Its stream sequence."""
        return header.number(self.headers, "Nats-Sequence")


@dataclass
class _Batch:
    """Replies to one request. has_more: resolved by the end-of-batch message."""

    has_more: asyncio.Future[bool]
    messages: list[Stored] = field(default_factory=list[Stored])


class DirectReader:
    """Reads stored messages in order. One inbox for all reads of a process."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._inbox = Inbox(bus, self._on_reply)
        self._batches: dict[bytes, _Batch] = {}
        bus.on_disconnect(self._fail_all)

    async def read(self, stream: str, subject: str, from_seq: int = 1) -> list[Stored]:
        """All stored messages of `subject` with a sequence ≥ from_seq, as one replica knows them.

        Raises BusUnavailable.
        """
        batches = self.batches(stream, subject, from_seq)
        return [message async for batch in batches for message in batch]

    async def batches(
        self, stream: str, subject: str, from_seq: int = 1
    ) -> AsyncGenerator[list[Stored]]:
        """The same piece by piece, the first piece a small one, so that a reader can begin."""
        n = FIRST_BATCH
        while True:
            batch = await self._read_next(stream, subject, from_seq, n)
            if batch.messages:
                yield batch.messages
            if not batch.has_more.result() or not batch.messages:
                return
            from_seq, n = batch.messages[-1].seq + 1, BATCH

    async def whole(
        self, stream: str, subject: str, from_seq: int = 1, n_left: int = 0
    ) -> AsyncGenerator[list[Stored]]:
        """The same of a subject that never loses a single message: if some go meanwhile, all do.

        n_left: as many there are at least. Raises Shrunk before it gives what follows on a gap.
        """
        n = FIRST_BATCH
        while True:
            batch = await self._read_next(stream, subject, from_seq, n)
            n_left = _check_whole(batch.messages, n_left, n)
            if batch.messages:
                yield batch.messages
            if not batch.has_more.result() or not batch.messages:
                return
            from_seq, n = batch.messages[-1].seq + 1, BATCH

    async def last_of(self, stream: str, names: Sequence[str]) -> dict[str, Stored]:
        """The last messages of these subjects (1,000 at most), as one replica knows them. Raises
        BusUnavailable."""
        batch = await self._read_batch(stream, {"multi_last": list(names), "batch": len(names)})
        return {
            (header.field(each.headers, "Nats-Subject") or b"").decode(): each
            for each in batch.messages
        }

    async def _read_next(self, stream: str, subject: str, from_seq: int, n: int) -> "_Batch":
        query: dict[str, object] = {"batch": n, "seq": max(1, from_seq), "next_by_subj": subject}
        return await self._read_batch(stream, query)

    async def _read_batch(self, stream: str, query: dict[str, object]) -> _Batch:
        try:
            if not self._inbox.is_open:
                await self._inbox.open()
            token = self._inbox.new_token()
            batch = _Batch(asyncio.get_running_loop().create_future())
            self._batches[token] = batch
            await self._send(stream, query, token, batch)
        except (TimeoutError, nats.errors.Error, OSError) as error:
            raise BusUnavailable(f"cannot read stream {stream}: {error!r}") from error
        return batch

    async def _send(
        self, stream: str, query: dict[str, object], token: bytes, batch: _Batch
    ) -> None:
        try:
            target = f"$JS.API.DIRECT.GET.{stream}"
            reply = self._inbox.subject_of(token)
            await self._bus.nc.publish(target, json.dumps(query).encode(), reply=reply)
            async with asyncio.timeout(BATCH_TIMEOUT_S):
                await batch.has_more
        finally:
            self._batches.pop(token, None)

    def _on_reply(self, token: bytes, headers: bytes, data: bytes) -> None:
        batch = self._batches.get(token)
        if batch is None or batch.has_more.done():
            return
        status = header.status(headers)
        if not status:
            batch.messages.append(Stored(headers, data))
        elif status == b"204":
            batch.has_more.set_result(header.field(headers, "Nats-Num-Pending") not in (None, b"0"))
        elif status == b"404":
            batch.has_more.set_result(False)
        else:
            error = BusUnavailable(f"direct get answered {status.decode('ascii', 'replace')}")
            batch.has_more.set_exception(error)

    def _fail_all(self) -> None:
        for batch in self._batches.values():
            if not batch.has_more.done():
                error = BusUnavailable("the connection to the broker broke")
                batch.has_more.set_exception(error)


def _check_whole(messages: list[Stored], n_left: int, n_asked: int) -> int:
    """How many are left after these, by what the first one says of those behind it. Raises Shrunk."""
    n_there = 1 + header.number(messages[0].headers, "Nats-Num-Pending") if messages else 0
    n_bytes = sum(len(message.data) for message in messages)
    is_short = len(messages) < min(n_asked, n_there) and n_bytes < SHORT_BYTES
    if n_there < n_left or is_short:
        raise Shrunk(max(n_left, n_there))
    return n_there - len(messages)
