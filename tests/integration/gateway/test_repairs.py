"""What dead services left is put in order by the sweep of those that live."""

import asyncio
import time

import pytest

from schemas import subjects
from schemas.events import Cancelled, Finished, Requested
from schemas.generation import Generation
from schemas.tasks import Task
from services.bus.connection import Bus
from services.bus.log import LogWriter
from services.bus.tasks import publish_task
from services.streams.bootstrap import create_conversations, create_hub, sweeping
from services.streams.config import StreamsSettings
from services.streams.conversations import entry_of
from services.streams.strays import STRAY_MS
from services.streams.unshown import UNSHOWN_MS
from tests.support import events
from tests.support.engine_desk import new_requested
from tests.support.gateway import Gateway
from tests.support.logs import ended
from tests.support.scripted_engine import ScriptedEngine

NAME = "c1"


def now_ms() -> int:
    return time.time_ns() // 1_000_000


async def opened(bus: Bus, model_key: str, name: str, replaces: str | None = None) -> Requested:
    """A gateway queued the task, opened the log, and died a while ago."""
    requested = new_requested(
        events.new_id(),
        model_key,
        conversation=name,
        replaces=replaces,
        dialect="native.completion",
        created_at_ms=now_ms() - UNSHOWN_MS,
    )
    task = Task(
        generation_id=requested.generation_id,
        created_at_ms=requested.created_at_ms,
        conversation=subjects.conversation_key("", name),
    )
    await publish_task(bus, model_key, task)
    await LogWriter(bus).append(Generation(), requested.generation_id, requested)
    return requested


@pytest.mark.parametrize("has_old", [False, True])
async def test_a_conversation_shows_what_was_opened_for_it(
    bus: Bus, engine: ScriptedEngine, gateway: Gateway, has_old: bool
) -> None:
    engine.gates.may_go_on.clear()
    name = f"{NAME} {has_old}"
    conversations, hub = create_conversations(bus), create_hub(bus, StreamsSettings())
    old = await opened(bus, gateway.model_key, name) if has_old else None
    if old is not None:
        await conversations.swap("", name, entry_of(old))
    new = await opened(bus, gateway.model_key, name, None if old is None else old.generation_id)
    async with sweeping(bus, hub, LogWriter(bus)), asyncio.timeout(20):
        while True:  # the broker tells nobody who asks once
            entry = await conversations.find("", name)
            if entry is not None and entry.generation_id == new.generation_id:
                break
            await asyncio.sleep(0.1)
        if old is not None:
            end = (await ended(bus, old.generation_id)).end
            assert isinstance(end, Cancelled)
            assert end.reason == "replaced"
        replaying = asyncio.create_task(gateway.client.get("/v1/stream", params={"conv_id": name}))
        engine.gates.open()
        assert "Hello" in (await replaying).text
    await hub.close()


async def test_a_task_for_a_dead_engine_is_done_by_another(
    bus: Bus, engine: ScriptedEngine, gateway: Gateway
) -> None:
    requested = new_requested(events.new_id(), gateway.model_key)
    task = Task(
        generation_id=requested.generation_id,
        created_at_ms=now_ms() - STRAY_MS,
        deadline_at_ms=requested.deadline_at_ms,
    )
    await publish_task(bus, gateway.model_key, task, ordinal=7)
    await LogWriter(bus).append(Generation(), requested.generation_id, requested)
    hub = create_hub(bus, StreamsSettings())
    async with sweeping(bus, hub, LogWriter(bus)):
        state = await ended(bus, requested.generation_id)
    assert isinstance(state.end, Finished)
    await hub.close()
