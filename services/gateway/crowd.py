"""Requests that come at the same moment, so that an engine that is told of the first waits for the others."""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager

LOOK_TURNS = 3
"""Turns of the event loop in which what has arrived meanwhile is read; some 50 µs where nothing has."""


class Crowd:
    """Those of this process that have come and not been sent to an engine yet. Event-loop thread only."""

    def __init__(self) -> None:
        self._n = 0

    @contextmanager
    def member(self) -> "Generator[Member]":
        """While inside, or until it is counted, one more is coming."""
        member = Member(self)
        self._n += 1
        try:
            yield member
        finally:
            member.leave()

    @property
    def n(self) -> int:
        return self._n

    def leave(self) -> None:
        self._n -= 1


class Member:
    """One request of the crowd."""

    def __init__(self, crowd: Crowd) -> None:
        self._crowd = crowd
        self._is_in = True

    async def n_following(self) -> int:
        """How many others are right behind this one, which is on its way from now on."""
        for _ in range(LOOK_TURNS):
            await asyncio.sleep(0)
        self.leave()
        return self._crowd.n

    def leave(self) -> None:
        """Idempotent."""
        if self._is_in:
            self._is_in = False
            self._crowd.leave()
