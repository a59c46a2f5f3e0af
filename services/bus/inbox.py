"""One wildcard reply inbox for many requests that may get several replies each."""

import asyncio
from collections.abc import Callable

from services.bus.connection import Bus

OnReply = Callable[[bytes, bytes, bytes], None]
"""Takes token, header block and data of a reply."""


class Inbox:
    """Hands replies to `on_reply`; subscribes at first use."""

    def __init__(self, bus: Bus, on_reply: OnReply) -> None:
        self._bus = bus
        self._on_reply = on_reply
        self._prefix = ""
        self._n_prefix = 0
        self._n_tokens = 0
        self._lock = asyncio.Lock()

    async def open(self) -> None:
        """Subscribe, unless that was done. Raises nats errors."""
        async with self._lock:
            if self._prefix:
                return
            prefix = self._bus.nc.new_inbox() + "."
            self._n_prefix = len(prefix)
            await self._bus.nc.subscribe_direct(prefix + "*", self._receive)
            self._prefix = prefix

    @property
    def is_open(self) -> bool:
        return bool(self._prefix)

    def new_token(self) -> bytes:
        """A token for one more request; its reply subject is `subject_of(token)`."""
        self._n_tokens += 1
        return b"%d" % self._n_tokens

    def subject_of(self, token: bytes) -> str:
        return self._prefix + token.decode()

    def _receive(self, subject: bytes, headers: bytes, data: bytes) -> None:
        self._on_reply(subject[self._n_prefix :], headers, data)
