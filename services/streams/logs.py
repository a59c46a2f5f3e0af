"""The read side's view of the logs: an interface, and its adapter over the bus."""

from collections.abc import Callable
from typing import Protocol

from schemas.errors import LlamatapeError
from services.bus import log, tasks
from services.bus.connection import Bus
from services.bus.live_log import LiveLog
from services.bus.log import Entry

OnEntry = Callable[[Entry], None]
OnLost = Callable[[LlamatapeError], None]


class FollowedLog(Protocol):
    """One log being followed: every entry once, in order, history first."""

    async def start(self, *, is_new: bool = False) -> None:
        """Returns when all that was stored has been delivered. is_new: nothing can be stored yet.
        Raises BusUnavailable."""
        ...

    async def stop(self) -> None: ...


class Logs(Protocol):
    """All logs. Methods raise BusUnavailable."""

    def follow(self, generation_id: str, on_entry: OnEntry, on_lost: OnLost) -> FollowedLog:
        """on_lost: called once if nothing more can come after `start`, though the end has not; with
        the reason."""
        ...

    async def read(self, generation_id: str, after_seq: int = 0) -> list[Entry]:
        """Every entry after that sequence that the leader knows."""
        ...

    async def last_entry(self, generation_id: str) -> Entry | None: ...

    async def poke(self, model_key: str, generation_id: str) -> None:
        """Tell the model's engines to look at that log. Best effort."""
        ...


class BusLogs:
    """The logs on the broker."""

    def __init__(self, bus: Bus, *, silence_s: float) -> None:
        self._bus = bus
        self._silence_s = silence_s

    def follow(self, generation_id: str, on_entry: OnEntry, on_lost: OnLost) -> FollowedLog:
        return LiveLog(self._bus, generation_id, on_entry, on_lost, silence_s=self._silence_s)

    async def read(self, generation_id: str, after_seq: int = 0) -> list[Entry]:
        return await log.read_log(self._bus, generation_id, after_seq)

    async def last_entry(self, generation_id: str) -> Entry | None:
        return await log.last_entry(self._bus, generation_id)

    async def poke(self, model_key: str, generation_id: str) -> None:
        await tasks.poke(self._bus, model_key, generation_id)
