"""One wildcard reply inbox for many requests that may get several replies each."""

import asyncio
from collections.abc import Awaitable, Callable

from nats.aio.msg import Msg

from services.bus.connection import Bus


class Inbox:
    """Hands replies to `on_reply(token, message)`; subscribes at first use."""

    def __init__(self, bus: Bus, on_reply: Callable[[str, Msg], None]) -> None:
        self._bus = bus
        self._on_reply = on_reply
        self._prefix = ""
        self._n_tokens = 0
        self._lock = asyncio.Lock()

    async def new_token(self) -> str:
        """A token for one more request; its reply subject is `subject_of(token)`."""
        if not self._prefix:
            async with self._lock:
                await self._subscribe()
        self._n_tokens += 1
        return str(self._n_tokens)

    def subject_of(self, token: str) -> str:
        return self._prefix + token

    async def _subscribe(self) -> None:
        if self._prefix:
            return
        prefix = self._bus.nc.new_inbox() + "."
        await self._bus.nc.subscribe(prefix + "*", cb=self._on_message())
        self._prefix = prefix

    def _on_message(self) -> Callable[[Msg], Awaitable[None]]:
        async def on_message(message: Msg) -> None:
            self._on_reply(message.subject.rsplit(".", 1)[1], message)

        return on_message
