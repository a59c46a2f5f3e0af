"""Requests and questions past nats-py's queues, beside nats-py's own."""

import asyncio
from pathlib import Path

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import NoRespondersError

from services.bus.config import BusSettings
from services.bus.connection import Bus, connect, unsubscribe
from services.bus.errors import BusUnavailable
from services.bus.requests import Requests
from services.cli.broker import start_broker


async def take(bus: Bus, subject: str, suffix: bytes, queue: str = "") -> list[bytes]:
    """Answer every question with itself and `suffix`; the questions so far."""
    asked: list[bytes] = []

    def on_question(reply: bytes, data: bytes) -> None:
        asked.append(data)
        assert bus.nc.send(reply.decode(), "", "", data + suffix)

    await bus.nc.subscribe_questions(subject, queue, on_question)
    await bus.flush()
    return asked


async def test_each_request_has_its_own_reply(bus: Bus) -> None:
    await take(bus, "r.each", b"!")
    requests = bus.part(Requests)
    asking = [requests.ask("r.each", b"%d" % n, 5) for n in range(200)]
    assert await asyncio.gather(*asking) == [b"%d!" % n for n in range(200)]


async def test_nats_py_asks_and_answers_the_same(bus: Bus, plain: Client) -> None:
    await take(bus, "r.ours", b"!")
    assert (await plain.request("r.ours", b"a", timeout=5)).data == b"a!"

    async def answer(message: Msg) -> None:
        await message.respond(b"b")

    subscription = await plain.subscribe("r.theirs", cb=answer)
    await plain._flush_pending(force_flush=True)
    await plain.flush()
    assert await bus.part(Requests).ask("r.theirs", b"", 5) == b"b"
    await subscription.unsubscribe()


async def test_nobody_and_somebody_who_is_silent(bus: Bus, plain: Client) -> None:
    with pytest.raises(NoRespondersError):
        await bus.part(Requests).ask("r.nobody", b"", 5)
    await plain.subscribe("r.silent")
    await plain._flush_pending(force_flush=True)
    await plain.flush()
    with pytest.raises(TimeoutError):
        await bus.part(Requests).ask("r.silent", b"", 0.05)


async def test_a_group_shares_its_questions_and_one_may_leave(bus: Bus) -> None:
    asked: list[bytes] = []

    def on_question(reply: bytes, data: bytes) -> None:
        asked.append(data)
        bus.nc.send(reply.decode(), "", "", b"")

    first = await bus.nc.subscribe_questions("r.group", "g", on_question)
    await bus.nc.subscribe_questions("r.group", "g", on_question)
    await bus.flush()
    requests = bus.part(Requests)
    await asyncio.gather(*(requests.ask("r.group", b"", 5) for _ in range(50)))
    assert len(asked) == 50
    await unsubscribe(first)
    await bus.flush()
    await asyncio.gather(*(requests.ask("r.group", b"", 5) for _ in range(50)))
    assert len(asked) == 100


async def test_a_break_ends_those_who_do_not_wait_on(tmp_path: Path) -> None:
    broker = start_broker(tmp_path)
    bus = await connect(BusSettings(url=broker.url, token=broker.token), name="test")
    asked = await take(bus, "r.late", b"!")
    await bus.nc.subscribe("r.silent")
    await bus.flush()
    requests = bus.part(Requests)
    bound = asyncio.ensure_future(requests.ask("r.silent", b"", 30))
    patient = asyncio.ensure_future(requests.ask("r.silent", b"", 30, is_patient=True))
    await bus.flush()
    back = asyncio.Event()
    bus.on_reconnect(back.set)
    broker.kill()
    again = start_broker(tmp_path, token=broker.token, port=broker.port)
    try:
        with pytest.raises(BusUnavailable):
            await asyncio.wait_for(bound, 10)
        assert not patient.done()
        patient.cancel()
        await asyncio.wait_for(back.wait(), 10)
        assert await requests.ask("r.late", b"a", 5) == b"a!"
        assert asked == [b"a"]
    finally:
        await bus.close()
        again.stop()
