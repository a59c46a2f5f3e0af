"""A task for one engine goes to all when that one is gone."""

import pytest

from schemas import codec, subjects
from schemas.lifecycle import FAILED, LOADED, LOADING, EnginePresence
from schemas.tasks import Task
from services.bus.open_tasks import OpenTask
from services.streams.strays import STRAY_MS, Strays
from tests.support import events

KEY = subjects.model_key("m")
NOW_MS = 1_700_000_000_000


class FakeQueue:
    def __init__(self) -> None:
        self.sent: list[str] = []
        self.removed: list[int] = []

    async def send_to_all(self, found: OpenTask) -> None:
        self.sent.append(found.task.generation_id)

    async def remove(self, seq: int) -> None:
        self.removed.append(seq)


class FakePresence:
    def __init__(self, *engines: EnginePresence) -> None:
        self._engines = engines
        self.n_asked = 0

    async def entries(self, pattern: str) -> dict[str, bytes]:
        self.n_asked += 1
        return {each.engine: codec.encode(each) for each in self._engines} | {"bad": b"?"}


def engine(ordinal: int, status: str = LOADED, model_key: str = KEY) -> EnginePresence:
    return EnginePresence(
        engine=f"e{ordinal}", host="h", model_key=model_key, status=status, ordinal=ordinal
    )


def task(ordinal: int | None, age_ms: int = STRAY_MS) -> OpenTask:
    made = Task(generation_id=events.new_id(), created_at_ms=NOW_MS - age_ms)
    return OpenTask(7, KEY, made, subjects.tasks(KEY, ordinal))


async def look(presence: FakePresence, *tasks: OpenTask) -> FakeQueue:
    queue = FakeQueue()
    await Strays(queue, presence, now_ms=lambda: NOW_MS).look(tasks)
    return queue


@pytest.mark.parametrize(
    "engines",
    [(), (engine(0),), (engine(1, FAILED),), (engine(1, model_key=subjects.model_key("other")),)],
)
async def test_its_engine_is_gone(engines: tuple[EnginePresence, ...]) -> None:
    stray = task(1)
    queue = await look(FakePresence(*engines), stray)
    assert queue.sent == [stray.task.generation_id]
    assert queue.removed == [7]


@pytest.mark.parametrize("status", [LOADING, LOADED])
async def test_its_engine_is_there_or_comes_back(status: str) -> None:
    assert (await look(FakePresence(engine(1, status)), task(1))).sent == []


async def test_others_are_not_even_asked_after() -> None:
    presence = FakePresence()
    queue = await look(presence, task(None), task(1, STRAY_MS - 1))
    assert (queue.sent, presence.n_asked) == ([], 0)
