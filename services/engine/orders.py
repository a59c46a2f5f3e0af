"""Orders to one running generation: they are carried out when their effect is in the log. Event loop."""

import asyncio
from collections.abc import Callable, Iterable

from schemas.events import Controlled, Event


class Orders:
    """given: sent to the decoder. taken: it has obeyed, and what that changed is about to be stored."""

    def __init__(self) -> None:
        self._given: list[asyncio.Future[bool]] = []
        self._taken: list[asyncio.Future[bool]] = []

    async def give(self, send: Callable[[], None]) -> bool:
        """Call `send`, and wait; False where the generation ended before."""
        order = asyncio.get_running_loop().create_future()
        self._given.append(order)
        send()
        return await order

    def on_taken(self, n_choices: int) -> None:
        """The decoder has obeyed the oldest one. n_choices: that it changed; nothing is stored of none."""
        if not self._given:
            return
        order = self._given.pop(0)
        if n_choices:
            self._taken.append(order)
        else:
            _resolve([order], is_done=True)

    def on_stored(self, events: Iterable[Event]) -> None:
        """These events are in the log."""
        if self._taken and any(isinstance(event, Controlled) for event in events):
            _resolve(self._taken, is_done=True)
            self._taken = []

    def close(self) -> None:
        """Nothing more will be stored."""
        _resolve([*self._given, *self._taken], is_done=False)
        self._given, self._taken = [], []


def _resolve(orders: Iterable["asyncio.Future[bool]"], *, is_done: bool) -> None:
    for order in orders:
        if not order.done():
            order.set_result(is_done)
