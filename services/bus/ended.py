"""Hints that a generation ended. One message each, in a work queue of their own; a lost one costs time
only, since the archive looks through all logs now and then."""

import asyncio
import contextlib
from datetime import datetime
from typing import NamedTuple

import nats.errors
from nats.aio.msg import Msg
from nats.js.api import AckPolicy, ConsumerConfig
from nats.js.client import JetStreamContext
from nats.js.errors import Error as JetStreamError

from schemas import subjects
from services.bus.cancellable import cancellable
from services.bus.connection import Bus, unsubscribe
from services.bus.errors import BusUnavailable
from services.bus.jetstream import api

ACK_WAIT_S = 60.0
"""How long one archiver may take for what it fetched, before another one gets it."""
MAX_ACK_PENDING = 20_000
FETCH_WAIT_S = 2.0
RETRY_S = 0.5
NOT_THERE = (10014, 10059)
"""JetStream's codes for a consumer and a stream that do not exist."""


def hint(bus: Bus, generation_id: str) -> None:
    """Tell the archive that this generation ended. Neither waits nor raises."""
    bus.nc.send(subjects.ended(generation_id), "", "", b"")


class Hint:
    """One hint as delivered to this archiver."""

    def __init__(self, message: Msg) -> None:
        self._message = message
        self.generation_id = subjects.generation_id_of(message.subject)

    async def ack(self) -> None:
        """It is archived. If the message is lost, it comes again and is found to be archived."""
        with contextlib.suppress(nats.errors.Error, OSError):
            await self._message.ack()

    async def nak(self, delay_s: float) -> None:
        """Deliver it again after that time, to whichever archiver."""
        with contextlib.suppress(nats.errors.Error, OSError):
            await self._message.nak(delay=delay_s)


class HintQueue:
    """The hints, shared by all archivers."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._pull: JetStreamContext.PullSubscription | None = None

    async def fetch(self, n: int, wait_s: float = FETCH_WAIT_S) -> list[Hint]:
        """Up to n hints; waits at most `wait_s` for the first. Empty when there is none or no broker."""
        try:
            if self._pull is None:
                self._pull = await self._bind()
            fetching = self._pull.fetch(n, timeout=wait_s)
            return [Hint(message) for message in await cancellable(fetching)]
        except TimeoutError:
            return []
        except (nats.errors.Error, JetStreamError, OSError, BusUnavailable):
            await asyncio.sleep(RETRY_S)
            return []

    async def stop(self) -> None:
        """Idempotent."""
        pull, self._pull = self._pull, None
        await unsubscribe(pull)  # type: ignore[arg-type]

    async def _bind(self) -> JetStreamContext.PullSubscription:
        name = subjects.ARCHIVERS_DURABLE
        config = ConsumerConfig(
            name=name,
            durable_name=name,
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=ACK_WAIT_S,
            max_ack_pending=MAX_ACK_PENDING,
            max_deliver=-1,
        )
        await self._bus.js.add_consumer(subjects.ENDED_STREAM, config)
        return await self._bus.js.pull_subscribe_bind(consumer=name, stream=subjects.ENDED_STREAM)


class Backlog(NamedTuple):
    """Hints that no archiver is done with. lag_s: how long the oldest one has waited."""

    n: int
    lag_s: float


async def has_archivers(bus: Bus) -> bool:
    """Whether this platform has an archive: some archiver has asked for hints once. Raises
    BusUnavailable."""
    path = f"CONSUMER.INFO.{subjects.ENDED_STREAM}.{subjects.ARCHIVERS_DURABLE}"
    error = (await api(bus, path)).get("error")
    if error and error.get("err_code") not in NOT_THERE:
        raise BusUnavailable(f"cannot look at the archivers: {error}")
    return not error


async def backlog(bus: Bus, now: datetime) -> Backlog | None:
    """None where there is no archive, so that hints wait for nobody. Raises BusUnavailable."""
    if not await has_archivers(bus):
        return None
    state = (await api(bus, f"STREAM.INFO.{subjects.ENDED_STREAM}")).get("state")
    if state is None:
        raise BusUnavailable("cannot look at the hints")
    oldest = datetime.fromisoformat(state["first_ts"][:19] + "+00:00")
    n = int(state["messages"])
    return Backlog(n, max(0.0, (now - oldest).total_seconds()) if n else 0.0)
