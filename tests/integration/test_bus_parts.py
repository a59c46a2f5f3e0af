"""Task queue, buckets and RPC, on a real nats-server."""

import asyncio

import pytest

from schemas import rpc, subjects
from schemas.errors import RequestError
from schemas.tasks import Task
from services.bus.connection import Bus
from services.bus.errors import KeyConflict, NoResponder, RpcTimeout
from services.bus.kv import Bucket
from services.bus.rpc import ask, serve
from services.bus.task_queue import TaskQueue
from services.bus.tasks import on_poke, poke, publish_task
from tests.support import events


async def new_queue(bus: Bus, name: str, ordinal: int | None = None) -> tuple[TaskQueue, str]:
    key = subjects.model_key(name)
    queue = TaskQueue(bus, key, ordinal)
    await queue.start()
    return queue, key


async def test_a_task_is_delivered_once_and_gone_after_its_ack(bus: Bus) -> None:
    queue, key = await new_queue(bus, "once")
    task = Task(generation_id=events.new_id())
    await publish_task(bus, key, task)
    await publish_task(bus, key, task)  # the same id again is dropped
    deliveries = await queue.fetch(5, 0.3)
    assert [d.task for d in deliveries] == [task]
    await deliveries[0].ack()
    assert await queue.fetch(5, 0.2) == []


async def test_a_task_without_a_sign_of_life_is_delivered_again_after_the_lease(bus: Bus) -> None:
    queue, key = await new_queue(bus, "lease")
    await publish_task(bus, key, Task(generation_id=events.new_id()))
    (first,) = await queue.fetch(1)
    (again,) = await queue.fetch(1, 2.0)
    assert again.task == first.task
    assert again.n_delivered == 2
    await again.ack()


async def test_a_task_sent_back_comes_again(bus: Bus) -> None:
    queue, key = await new_queue(bus, "nak")
    await publish_task(bus, key, Task(generation_id=events.new_id()))
    (first,) = await queue.fetch(1)
    await first.nak()
    (again,) = await queue.fetch(1, 0.5)
    assert again.task == first.task


async def test_a_task_for_one_engine_reaches_only_that_one(bus: Bus) -> None:
    anyone, key = await new_queue(bus, "addressed")
    second, _ = await new_queue(bus, "addressed", 1)
    task = Task(generation_id=events.new_id())
    await publish_task(bus, key, task, ordinal=1)
    assert await anyone.fetch(1, 0.2) == []
    (delivery,) = await second.fetch(1)
    assert delivery.task == task
    await delivery.ack()


async def test_a_poke_reaches_the_engines_of_its_model(bus: Bus) -> None:
    heard: asyncio.Queue[str] = asyncio.Queue()
    await on_poke(bus, "k1", heard.put_nowait)
    await bus.flush()
    await poke(bus, "k2", "other")
    await poke(bus, "k1", "mine")
    assert await asyncio.wait_for(heard.get(), 5) == "mine"
    assert heard.empty()


async def test_a_key_has_one_winner_per_revision(bus: Bus) -> None:
    bucket = Bucket(bus, subjects.CONVERSATIONS_BUCKET)
    key = subjects.conversation_key("caller", "conv::model")
    revision = await bucket.create(key, b"one")
    with pytest.raises(KeyConflict):
        await bucket.create(key, b"two")
    revision = await bucket.update(key, b"two", revision)
    with pytest.raises(KeyConflict):
        await bucket.update(key, b"three", revision - 1)
    found = await bucket.get(key)
    assert found == (b"two", revision)


async def test_a_deleted_key_can_be_created_again(bus: Bus) -> None:
    bucket = Bucket(bus, subjects.CONVERSATIONS_BUCKET)
    await bucket.create("a.b", b"one")
    await bucket.delete("a.b")
    await bucket.delete("a.b")
    assert await bucket.get("a.b") is None
    await bucket.create("a.b", b"two")


async def test_keys_are_found_by_pattern(bus: Bus) -> None:
    bucket = Bucket(bus, subjects.CONVERSATIONS_BUCKET)
    for conversation in ("x", "x::m1", "x::m2", "y"):
        await bucket.create(subjects.conversation_key("c", conversation), conversation.encode())
    found = await bucket.entries(subjects.conversation_variants("c", "x"))
    assert sorted(found.values()) == [b"x", b"x::m1", b"x::m2"]
    assert await bucket.keys(subjects.conversation_variants("other", "x")) == []


async def test_a_watch_tells_what_is_there_what_changes_and_what_expires(bus: Bus) -> None:
    bucket = Bucket(bus, subjects.PRESENCE_BUCKET)
    await bucket.put("engine.a", b"1")
    heard: asyncio.Queue[tuple[str, bytes | None]] = asyncio.Queue()
    watch = await bucket.watch(lambda key, value: heard.put_nowait((key, value)), "engine.*")
    await bucket.put("engine.b", b"2", ttl_s=1)
    seen = [await asyncio.wait_for(heard.get(), 10) for _ in range(3)]
    assert seen == [("engine.a", b"1"), ("engine.b", b"2"), ("engine.b", None)]
    assert await bucket.get("engine.b") is None
    await watch.stop()


async def test_questions_are_answered_refused_missed_or_late(bus: Bus) -> None:
    async def handler(question: rpc.Tokenize | rpc.Detokenize) -> rpc.Tokenized:
        if isinstance(question, rpc.Detokenize):
            raise RequestError.invalid("no such token")
        if question.content == b"slow":
            await asyncio.Event().wait()
        return rpc.Tokenized(ids=(1,), pieces=(b"a",))

    await serve(bus, "rpc.test", rpc.Tokenize | rpc.Detokenize, handler, queue="q")
    answer = await ask(bus, "rpc.test", rpc.Tokenize(content=b"a"), rpc.Tokenized)
    assert answer.ids == (1,)
    with pytest.raises(RequestError, match="no such token"):
        await ask(bus, "rpc.test", rpc.Detokenize(ids=(1,)), rpc.Detokenized)
    with pytest.raises(NoResponder):
        await ask(bus, "rpc.nobody", rpc.Tokenize(content=b"a"), rpc.Tokenized)
    with pytest.raises(RpcTimeout):
        await ask(bus, "rpc.test", rpc.Tokenize(content=b"slow"), rpc.Tokenized, timeout_s=0.1)
