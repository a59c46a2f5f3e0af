"""The tasks that nobody has finished yet: what is in the work queue names every open generation."""

from typing import NamedTuple

from schemas import codec, subjects
from schemas.errors import SchemaError
from schemas.tasks import Task
from services.bus import header
from services.bus.connection import Bus
from services.bus.direct_get import DirectReader
from services.bus.jetstream import api


class OpenTask(NamedTuple):
    """One task in the queue, delivered or not. seq: its sequence there. subject: of its queue."""

    seq: int
    model_key: str
    task: Task
    subject: str = ""


async def open_tasks(bus: Bus) -> list[OpenTask]:
    """All tasks of all models, oldest first, as one replica knows them. Raises BusUnavailable."""
    messages = await bus.part(DirectReader).read(subjects.TASKS_STREAM, subjects.TASKS_SUBJECTS)
    found: list[OpenTask] = []
    for message in messages:
        subject = (header.field(message.headers, "Nats-Subject") or b"").decode()
        model_key = subjects.model_key_of(subject)
        try:
            task = codec.decode(message.data, Task)
        except SchemaError:
            continue  # a newer build's; it will sweep it
        found.append(OpenTask(message.seq, model_key, task, subject))
    return found


async def remove_task(bus: Bus, seq: int) -> None:
    """Take a task off the queue, whoever holds it. Idempotent. Raises BusUnavailable."""
    await api(bus, f"STREAM.MSG.DELETE.{subjects.TASKS_STREAM}", {"seq": seq, "no_erase": True})
