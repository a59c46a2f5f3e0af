"""One connection to the broker: reconnects for ever, bounded buffers, request multiplexing."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any, TypeVar, cast

import nats
import nats.errors
from nats.aio.subscription import Subscription
from nats.js.client import JetStreamContext

from services.bus.config import BusSettings
from services.bus.counters import Counters
from services.bus.errors import BusUnavailable
from services.bus.lean_client import LeanClient

log = logging.getLogger(__name__)

RECONNECT_WAIT_S = 0.1
PING_INTERVAL_S = 10
PENDING_BYTES = 8 * 1024 * 1024
API_TIMEOUT_S = 5.0
HEADER_RESERVE_BYTES = 4096

T = TypeVar("T")


class Bus:
    """A connected client. Create it with `connect`; event-loop thread only."""

    def __init__(self, settings: BusSettings) -> None:
        self.settings = settings
        self.counters = Counters()
        self.nc = LeanClient()
        self.js: JetStreamContext = self.nc.jetstream(timeout=API_TIMEOUT_S)
        self._on_reconnect: list[Callable[[], None]] = []
        self._on_disconnect: list[Callable[[], None]] = []
        self._parts: dict[type, Any] = {}

    def part(self, kind: "Callable[[Bus], T]") -> T:
        """The one `kind` (an AckPipe, a DirectReader) of this connection, made at first use."""
        key = cast(type, kind)
        if key not in self._parts:
            self._parts[key] = kind(self)
        return cast(T, self._parts[key])

    @property
    def is_connected(self) -> bool:
        return self.nc.is_connected

    @property
    def max_message_bytes(self) -> int:
        """What one message may hold. Headers count too: over the limit the server hangs up for good."""
        return self.nc.max_payload - HEADER_RESERVE_BYTES

    def on_reconnect(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` after every reconnect; returns what forgets it again."""
        return _register(self._on_reconnect, callback)

    def on_disconnect(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` whenever the connection breaks; returns what forgets it again."""
        return _register(self._on_disconnect, callback)

    async def close(self) -> None:
        """Flush what is pending (1 s at most) and disconnect. Idempotent."""
        if self.nc.is_closed:
            return
        with contextlib.suppress(Exception):
            async with asyncio.timeout(1.0):
                await self.nc.flush()
        # The broker may be gone; over a connection that has just broken uvloop raises RuntimeError.
        with contextlib.suppress(OSError, nats.errors.Error, RuntimeError):
            await self.nc.close()

    async def flush(self) -> None:
        """Return when the broker has seen everything sent so far. Raises BusUnavailable."""
        try:
            await self.nc.flush(timeout=int(API_TIMEOUT_S))
        except (nats.errors.Error, OSError) as error:
            raise BusUnavailable(f"the broker does not answer: {error}") from error

    async def _open(self, name: str) -> None:
        settings = self.settings
        await self.nc.connect(
            servers=[url.strip() for url in settings.url.split(",")],
            name=name,
            token=settings.token or None,
            reconnect_time_wait=cast(int, RECONNECT_WAIT_S),
            max_reconnect_attempts=-1,
            ping_interval=PING_INTERVAL_S,
            pending_size=PENDING_BYTES,
            error_cb=self._on_error,
            disconnected_cb=self._disconnected,
            reconnected_cb=self._reconnected,
        )

    async def _on_error(self, error: Exception) -> None:
        # A connection that breaks is told by `_disconnected`; that is all there is to say of it.
        is_end = isinstance(error, nats.errors.UnexpectedEOF | OSError)
        log.log(logging.DEBUG if is_end else logging.WARNING, "action=bus_error error=%r", error)

    async def _disconnected(self) -> None:
        if not self.nc.is_closed:
            log.warning("action=bus_disconnected")
        _call_all(self._on_disconnect)

    async def _reconnected(self) -> None:
        log.info("action=bus_reconnected")
        _call_all(self._on_reconnect)


async def connect(settings: BusSettings, *, name: str, timeout_s: float = 10.0) -> Bus:
    """Connect to the broker, retrying until `timeout_s` is over. Raises BusUnavailable."""
    bus = Bus(settings)
    try:
        async with asyncio.timeout(timeout_s):
            await bus._open(name)  # pyright: ignore[reportPrivateUsage]
    except (nats.errors.Error, OSError, TimeoutError) as error:
        await bus.nc.close()
        raise BusUnavailable(f"cannot reach the broker at {settings.url}: {error!r}") from error
    return bus


async def unsubscribe(subscription: Subscription | None) -> None:
    """End a subscription, whatever state it or its connection is in."""
    if subscription is not None:
        with contextlib.suppress(nats.errors.Error, OSError):
            await subscription.unsubscribe()


def _register(
    callbacks: list[Callable[[], None]], callback: Callable[[], None]
) -> Callable[[], None]:
    callbacks.append(callback)

    def forget() -> None:
        with contextlib.suppress(ValueError):
            callbacks.remove(callback)

    return forget


def _call_all(callbacks: list[Callable[[], None]]) -> None:
    # An exception that leaves a nats-py callback ends its read loop for good.
    for callback in list(callbacks):
        try:
            callback()
        except Exception:
            log.exception("action=bus_callback_failed")
