"""Who is alive: the engines' entries of the bucket `presence`, kept as a set of values."""

import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

from schemas import codec
from schemas.errors import SchemaError
from schemas.lifecycle import LOADED, EnginePresence
from services.logs import event

log = logging.getLogger(__name__)

PATTERN = "engine.>"


class Stoppable(Protocol):
    """Something that runs until it is stopped."""

    async def stop(self) -> None: ...


class WatchableBucket(Protocol):
    """The part of services.bus.kv.Bucket that is needed here."""

    async def watch(
        self, callback: Callable[[str, bytes | None], None], pattern: str = ">"
    ) -> Stoppable: ...

    async def delete(self, key: str) -> None: ...


class Observer:
    """Keeps the living engines of one model. Event-loop thread.

    An engine goes when its entry expires on the broker or is deleted; the broker alone judges that,
    so no clock of ours can declare an engine dead. is_there: whether an engine answers on the bus.
    """

    def __init__(
        self,
        bucket: WatchableBucket,
        model_key: str,
        is_there: Callable[[str], Awaitable[bool]],
        on_change: Callable[[], None],
    ) -> None:
        self._bucket = bucket
        self._model_key = model_key
        self._is_there = is_there
        self._on_change = on_change
        self._engines: dict[str, EnginePresence] = {}
        self._watch: Stoppable | None = None

    @property
    def engines(self) -> tuple[EnginePresence, ...]:
        """The living engines of the model, ordered by id."""
        return tuple(self._engines[key] for key in sorted(self._engines))

    async def start(self) -> None:
        """Return when what is there is known. Raises BusUnavailable."""
        self._watch = await self._bucket.watch(self._on_entry, PATTERN)
        for key, engine in list(self._engines.items()):
            if engine.status == LOADED and not await self._is_there(engine.engine):
                await self._forget(key)

    async def _forget(self, key: str) -> None:
        # After a crash and a quick new start, entries of the crashed engines have not expired yet.
        await self._bucket.delete(key)
        self._on_entry(key, None)

    async def stop(self) -> None:
        """Idempotent."""
        if self._watch is not None:
            await self._watch.stop()
            self._watch = None

    def _on_entry(self, key: str, value: bytes | None) -> None:
        before = self._engines.get(key)
        after = None if value is None else _decode(key, value)
        if after is not None and after.model_key == self._model_key:
            self._engines[key] = after
        else:
            self._engines.pop(key, None)
        if self._engines.get(key) != before:
            self._on_change()


def _decode(key: str, value: bytes) -> EnginePresence | None:
    try:
        return codec.decode(value, EnginePresence)
    except SchemaError as error:
        event(log, "presence_unreadable", level=logging.WARNING, key=key, error=str(error))
        return None
