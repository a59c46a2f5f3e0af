"""Generations that come at the same time go to an idle decoder together. Event-loop thread only.

The first one alone would keep the others waiting for its whole prompt: decoded together, all of them
have their first token after little more than that.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable

from services.engine.protocol import Admit, Command

HOLD_S = 0.010
"""How long the first one waits for those whose tasks are here, but not claimed yet."""
EXPECT_S = 0.02
"""A task that is prepared and does not come in this time is another engine's."""


class Expected:
    """Requests that somebody asked the meaning of: their tasks follow, here or at another engine. And
    those that are about to ask."""

    def __init__(self, n_most: int) -> None:
        self._asked_at: deque[float] = deque(maxlen=n_most)
        self._n_following = 0
        self._followed_at = 0.0

    def add(self, n_following: int = 0) -> None:
        """One more. n_following: right behind it, as far as whoever asks knows."""
        self._followed_at = time.monotonic()
        self._n_following = n_following
        self._asked_at.append(self._followed_at)

    def remove(self) -> None:
        """One has come, or will not."""
        if self._asked_at:
            self._asked_at.popleft()

    def __bool__(self) -> bool:
        """Whether there is one that may still come."""
        now = time.monotonic()
        if self._n_following and now - self._followed_at < EXPECT_S:
            return True
        return any(now - at < EXPECT_S for at in self._asked_at)


class Together:
    """Passes commands on, in their order; an admission may wait a little for others.

    send: to the decoder. is_worth_waiting: whether, with so many admissions held back and one more,
    the decoder has nothing else to do and others are about to come.
    """

    def __init__(
        self, send: Callable[[Command], None], is_worth_waiting: Callable[[int], bool]
    ) -> None:
        self._send = send
        self._is_worth_waiting = is_worth_waiting
        self._held: list[Admit] = []
        self._timer: asyncio.TimerHandle | None = None

    def send(self, command: Command) -> None:
        if isinstance(command, Admit):
            self._held.append(command)
            if self._is_worth_waiting(len(self._held)):
                self._wait()
                return
        self.flush()
        if not isinstance(command, Admit):
            self._send(command)

    def flush(self) -> None:
        """Wait no longer."""
        held = self.forget()
        for admit in held:
            self._send(admit)

    def forget(self) -> list[Admit]:
        """Those held back, which the decoder will not hear of."""
        held, self._held = self._held, []
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        return held

    def _wait(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(HOLD_S, self.flush)
