"""nats-py's client with a short way in and out for what happens per token.

nats-py parses headers line by line, queues every message and wakes a task for it: 40 µs and more on a
busy machine. A direct subscription is called from the read loop instead, with bytes as they came. The
rest (connecting, reconnecting, ordinary subscriptions, requests) is nats-py's own. What is private
there and used here is pinned by tests/contract/test_lean_client.py.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import ProtocolError
from nats.protocol.parser import Parser

from services.bus.cancellable import cancellable

log = logging.getLogger(__name__)

Receive = Callable[[bytes, bytes, bytes], None]
"""Takes subject, header block (empty for none) and data of one message. Must not block."""

TakeQuestion = Callable[[bytes, bytes], None]
"""Takes the subject that awaits a reply, and the data of one message. Must not block."""

_CRLF = b"\r\n"
_MESSAGE_STARTS = (b"MSG ", b"HMSG ")


class LeanClient(Client):
    """Event-loop thread only."""

    def __init__(self) -> None:
        super().__init__()
        self.direct: dict[int, Receive] = {}
        self.questions: dict[int, TakeQuestion] = {}
        self._ps: Parser = LeanParser(self)

    async def subscribe_direct(self, subject: str, receive: Receive) -> Subscription:
        """Call `receive` for every message, in order; what it raises is logged. Survives reconnects.

        Raises what `subscribe` does.
        """
        sid = self._sid + 1
        self.direct[sid] = receive
        try:
            return await self.subscribe(subject)
        except BaseException:
            self.direct.pop(sid, None)
            raise

    async def subscribe_questions(
        self, subject: str, queue: str, take: TakeQuestion
    ) -> Subscription:
        """The same for messages that somebody wants a reply to. queue: see nats-py's `subscribe`."""
        sid = self._sid + 1
        self.questions[sid] = take
        try:
            return await self.subscribe(subject, queue)
        except BaseException:
            self.questions.pop(sid, None)
            raise

    async def flush(self, timeout: int = 10) -> None:
        """Return when the broker has taken all that was sent before; raises what nats-py's does.

        nats-py writes its ping past what still waits to be written, so that a new subscription may
        not be there yet when the answer comes.
        """
        await self._flush_pending(force_flush=True)
        await cancellable(super().flush(timeout))

    async def request(self, *args: Any, **kwargs: Any) -> Msg:
        """nats-py's, which JetStream's management is built on; may be cancelled at any moment."""
        return await cancellable(super().request(*args, **kwargs))

    def send(self, subject: str, reply: str, headers: str, data: bytes) -> bool:
        """Queue one message for the next write; False (and nothing done) where `publish` must decide.

        reply: where an answer is awaited, if any. headers: `Name: value` lines, each with its end.
        """
        if not self.is_connected or self._flush_queue is None or len(data) > self._max_payload:
            return False
        head = f"NATS/1.0\r\n{headers}\r\n".encode()
        n_head, n_all = len(head), len(head) + len(data)
        target = f"{subject} {reply}" if reply else subject
        line = f"HPUB {target} {n_head} {n_all}\r\n".encode()
        command = b"%b%b%b\r\n" % (line, head, data)
        if self._pending_data_size + len(command) > self._max_pending_size:
            return False
        self._pending.append(command)
        self._pending_data_size += len(command)
        self.stats["out_msgs"] += 1
        self.stats["out_bytes"] += len(data)
        if self._flush_queue.empty():
            self._flush_queue.put_nowait(asyncio.get_running_loop().create_future())
        return True

    def _remove_sub(self, sid: int, max_msgs: int = 0) -> None:
        self.direct.pop(sid, None)
        self.questions.pop(sid, None)
        super()._remove_sub(sid, max_msgs)


class LeanParser(Parser):
    """Cuts the stream into messages; every other line is left to nats-py's parser."""

    def __init__(self, client: LeanClient) -> None:
        super().__init__(client)
        self._client = client

    def reset(self) -> None:
        """Forget what has come; the connection is another one from now on."""
        super().reset()
        self._rest = bytearray()
        self._n_wanted = 0
        self._n_resets: int = getattr(self, "_n_resets", 0) + 1

    async def parse(self, data: bytes = b"") -> None:
        """Hand on every message that is complete. Raises ProtocolError."""
        if self._rest:
            self._rest += data
            if len(self._rest) < self._n_wanted:
                return
            data, self._rest = bytes(self._rest), bytearray()
        self._n_wanted = 0
        at, n_resets = 0, self._n_resets
        while at < len(data) and (end := data.find(_CRLF, at)) >= 0:
            if data.startswith(_MESSAGE_STARTS, at):
                after = await self._message(data, at, end)
            else:
                after = end + 2
                await super().parse(data[at:after])
            if self._n_resets != n_resets:
                return  # what follows belongs to a connection that is gone
            if after < 0:
                break
            at = after
        self._rest += data[at:]

    async def _message(self, data: bytes, at: int, end: int) -> int:
        """Hand on the message whose first line stands there; where it ends, −1 if some is missing."""
        words, begin = data[at:end].split(), end + 2
        try:
            sid, stop = int(words[2]), begin + int(words[-1])
            has_headers = words[0] == b"HMSG"
            body = begin + int(words[-2]) if has_headers else begin
        except (ValueError, IndexError) as error:
            raise ProtocolError("nats: malformed MSG") from error
        if len(data) < stop + 2:
            self._n_wanted = stop + 2 - at
            return -1
        reply = words[3] if len(words) > (5 if has_headers else 4) else b""
        if (receive := self._client.direct.get(sid)) is not None:
            self._count(stop - begin)
            _call(receive, words[1], data[begin:body], data[body:stop])
        elif (take := self._client.questions.get(sid)) is not None:
            self._count(stop - begin)
            _call(take, reply, data[body:stop])
        else:
            await self._client._process_msg(  # pyright: ignore[reportPrivateUsage]
                sid, words[1], reply, data[body:stop], data[begin:body]
            )
        return stop + 2

    def _count(self, n_bytes: int) -> None:
        stats = self._client.stats
        stats["in_msgs"] += 1
        stats["in_bytes"] += n_bytes


def _call(take: Callable[..., None], *args: bytes) -> None:
    # An exception that leaves the read loop ends it for good.
    try:
        take(*args)
    except Exception:
        log.exception("action=message_failed subject=%s", args[0].decode("utf-8", "replace"))
