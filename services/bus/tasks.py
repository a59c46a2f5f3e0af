"""The work queue: tasks are pointers to logs. At-least-once; the log's fence is the arbiter."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import cast

import nats.errors
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.js.client import JetStreamContext
from nats.js.errors import Error as JetStreamError

from schemas import codec, subjects
from schemas.tasks import Task
from services.bus.ack_pipe import AckPipe, PublishRefused
from services.bus.connection import Bus, unsubscribe
from services.bus.errors import BusUnavailable, StoreFull
from services.bus.topology import ensure_task_consumers

MAX_FETCH_WAIT_S = 2.0
"""A fetch that is pending while the broker restarts sleeps its whole time: keep it short."""


class Delivery:
    """One task as delivered to this engine. `ack` only after the own terminal event is stored."""

    def __init__(self, message: Msg) -> None:
        self._message = message
        self.task = codec.decode(message.data, Task)
        self.n_delivered = int(message.metadata.num_delivered or 1)

    async def in_progress(self) -> None:
        """Renew the lease. A broken connection is not an error here: the next call renews."""
        with contextlib.suppress(nats.errors.Error, OSError):
            await self._message.in_progress()

    async def ack(self) -> None:
        """Take the task off the queue. If the message is lost, redelivery finds a closed log."""
        with contextlib.suppress(nats.errors.Error, OSError):
            await self._message.ack()

    async def nak(self, delay_s: float = 0.0) -> None:
        """Send the task back, to be delivered again after `delay_s`."""
        with contextlib.suppress(nats.errors.Error, OSError):
            await self._message.nak(delay=delay_s or None)


class TaskQueue:
    """Tasks of one model (or, with an ordinal, of one engine)."""

    def __init__(self, bus: Bus, model_key: str, ordinal: int | None = None) -> None:
        self._bus = bus
        self._model_key = model_key
        self._ordinal = ordinal
        self._pull: JetStreamContext.PullSubscription | None = None

    async def start(self) -> None:
        """Create the consumer if need be and bind to it. Raises BusUnavailable."""
        try:
            await ensure_task_consumers(self._bus, self._model_key, self._ordinal)
            self._pull = await self._bus.js.pull_subscribe_bind(
                consumer=subjects.tasks_durable(self._model_key, self._ordinal),
                stream=subjects.TASKS_STREAM,
            )
        except (nats.errors.Error, JetStreamError, OSError) as error:
            raise BusUnavailable(f"cannot bind to the task queue: {error!r}") from error

    async def fetch(self, n: int, wait_s: float = MAX_FETCH_WAIT_S) -> list[Delivery]:
        """Up to n tasks; waits at most `wait_s`. Empty when there is none or no broker.

        Never cancel it: the broker would deliver into the void until the lease ends.
        """
        assert self._pull is not None, "start() was not called"
        try:
            messages = await self._pull.fetch(n, timeout=min(wait_s, MAX_FETCH_WAIT_S))
        except TimeoutError:
            return []
        except (nats.errors.Error, JetStreamError, OSError):
            await asyncio.sleep(0.1)
            return []
        return [Delivery(message) for message in messages]

    async def stop(self) -> None:
        if self._pull is not None:
            await unsubscribe(cast(Subscription, self._pull))


async def publish_task(bus: Bus, model_key: str, task: Task, ordinal: int | None = None) -> None:
    """Put a task into the queue; its message id is the generation id, so a repeat is dropped.

    Raises BusUnavailable, StoreFull.
    """
    subject = subjects.tasks(model_key, ordinal)
    headers = {"Nats-Msg-Id": task.generation_id}
    try:
        await bus.part(AckPipe).publish(subject, codec.encode(task), headers)
    except PublishRefused as refusal:
        raise StoreFull(f"the task queue refuses: {refusal}") from refusal


async def poke(bus: Bus, model_key: str, generation_id: str) -> None:
    """Tell the engines of a model to look at that log: it was ended. Best effort."""
    with contextlib.suppress(nats.errors.Error, OSError):
        await bus.nc.publish(subjects.cancel(model_key, generation_id))


async def on_poke(bus: Bus, model_key: str, callback: Callable[[str], None]) -> Subscription:
    """Call `callback(generation_id)` for every poke to a model's engines."""

    async def on_message(message: Msg) -> None:
        callback(subjects.generation_id_of(message.subject))

    return await bus.nc.subscribe(subjects.cancel(model_key, "*"), cb=on_message)


async def queue_depth(bus: Bus, model_key: str) -> int:
    """Tasks of a model that no engine has taken yet; 0 where no engine has ever asked. Raises
    BusUnavailable."""
    durable = subjects.tasks_durable(model_key)
    info = await bus.api(f"CONSUMER.INFO.{subjects.TASKS_STREAM}.{durable}")
    return int(info.get("num_pending", 0))
