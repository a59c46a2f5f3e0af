"""The work queue: tasks are pointers to logs. At-least-once; the log's fence is the arbiter."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from typing import Any

import nats.errors
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from schemas import codec, subjects
from schemas.lanes import LIGHT, SHARED
from schemas.tasks import Task
from services.bus.ack_pipe import AckPipe, PublishRefused
from services.bus.connection import Bus
from services.bus.errors import StoreFull
from services.bus.jetstream import api


class Delivery:
    """One task as delivered to this engine. `ack` only after the own terminal event is stored.

    n_behind: tasks in the same queue that nobody has taken yet, as it was when this one was sent.
    """

    def __init__(self, message: Msg) -> None:
        self._message = message
        self.task = codec.decode(message.data, Task)
        self.n_delivered = int(message.metadata.num_delivered or 1)
        self.n_behind = int(message.metadata.num_pending or 0)

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


async def publish_task(
    bus: Bus,
    model_key: str,
    task: Task,
    ordinal: int | None = None,
    lane: int = LIGHT,
    *,
    repeat: str = "",
) -> None:
    """Put a task into the queue of engine `ordinal`, or of a lane. Its message id is the generation
    id, so that a second one is dropped, unless `repeat` names a reason.

    Raises BusUnavailable, StoreFull.
    """
    subject = subjects.tasks(model_key, ordinal, lane)
    headers = {"Nats-Msg-Id": task.generation_id + repeat}
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


async def queue_depth(bus: Bus, model_key: str, ordinals: Iterable[int] = ()) -> int:
    """Tasks of a model, and of these engines' own queues, that no engine has taken yet; 0 where no
    engine has ever asked. Raises BusUnavailable."""
    durables = [subjects.tasks_durable(model_key, lane=lane) for lane in SHARED]
    durables += [subjects.tasks_durable(model_key, ordinal) for ordinal in ordinals]
    infos = await asyncio.gather(*(_consumer(bus, durable) for durable in durables))
    return sum(int(info.get("num_pending", 0)) for info in infos)


async def _consumer(bus: Bus, durable: str) -> dict[str, Any]:
    return await api(bus, f"CONSUMER.INFO.{subjects.TASKS_STREAM}.{durable}")
