"""What we use of nats-py's inside: a version that changes it fails here, not in production."""

import asyncio
import logging

import pytest
import uvloop
from nats.aio.client import Client
from nats.errors import ProtocolError

from services.bus import header
from services.bus.config import BusSettings
from services.bus.connection import Bus, connect
from services.bus.lean_client import LeanClient, LeanParser
from services.cli.broker import start_broker

BIG = b"x" * 300_000


class Heard:
    """What a direct subscription received."""

    def __init__(self) -> None:
        self.messages: list[tuple[bytes, bytes, bytes]] = []
        self._news = asyncio.Event()

    def receive(self, subject: bytes, headers: bytes, data: bytes) -> None:
        self.messages.append((subject, headers, data))
        self._news.set()

    async def wait(self, n: int) -> list[tuple[bytes, bytes, bytes]]:
        async with asyncio.timeout(5):
            while len(self.messages) < n:
                self._news.clear()
                await self._news.wait()
        return self.messages


@pytest.fixture
def heard() -> Heard:
    return Heard()


async def test_messages_come_in_order_with_and_without_headers(bus: Bus, heard: Heard) -> None:
    await bus.nc.subscribe_direct("a.*", heard.receive)
    await bus.nc.publish("a.1", b"plain")
    await bus.nc.publish("a.2", b"", headers={"Name": "value"})
    assert bus.nc.send("a.3", "reply.to", "Other: 5\r\n", b"sent")
    await bus.nc.publish("a.4", BIG)
    found = await heard.wait(4)
    assert [(subject, data) for subject, _, data in found] == [
        (b"a.1", b"plain"),
        (b"a.2", b""),
        (b"a.3", b"sent"),
        (b"a.4", BIG),
    ]
    assert header.field(found[1][1], "Name") == b"value"
    assert header.number(found[2][1], "Other") == 5
    assert found[0][1] == b""


async def test_an_ordinary_subscription_sees_the_same(bus: Bus) -> None:
    subscription = await bus.nc.subscribe("b")
    assert bus.nc.send("b", "reply.to", "Name: value\r\n", b"data")
    message = await subscription.next_msg(2)
    assert (message.data, message.reply, message.headers) == (
        b"data",
        "reply.to",
        {"Name": "value"},
    )


async def test_no_responders_is_a_status(bus: Bus, heard: Heard) -> None:
    inbox = bus.nc.new_inbox()
    await bus.nc.subscribe_direct(inbox, heard.receive)
    await bus.nc.publish("nobody", b"", reply=inbox)
    ((_, headers, _),) = await heard.wait(1)
    assert header.status(headers) == b"503"


async def test_nothing_comes_after_unsubscribing(bus: Bus, heard: Heard) -> None:
    gone = await bus.nc.subscribe_direct("c", heard.receive)
    await bus.nc.subscribe_direct("c", heard.receive)
    await gone.unsubscribe()
    await bus.nc.publish("c", b"once")
    await bus.nc.flush()
    assert len(heard.messages) == 1
    assert len(bus.nc.direct) == 1


async def test_a_receiver_that_fails_hurts_nobody(
    bus: Bus, heard: Heard, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_subject: bytes, _headers: bytes, _data: bytes) -> None:
        raise RuntimeError("no")

    await bus.nc.subscribe_direct("d", fail)
    await bus.nc.subscribe_direct("d", heard.receive)
    with caplog.at_level(logging.ERROR):
        await bus.nc.publish("d", b"x")
        await heard.wait(1)
    assert "message_failed" in caplog.text


async def test_what_it_cannot_send_is_left_to_publish(bus: Bus) -> None:
    assert not bus.nc.send("e", "r", "", b"x" * (bus.nc.max_payload + 1))
    await bus.close()
    assert not bus.nc.send("e", "r", "", b"x")


async def test_direct_subscriptions_survive_a_reconnect(
    tmp_path_factory: pytest.TempPathFactory, heard: Heard
) -> None:
    folder = tmp_path_factory.mktemp("broker")
    broker = start_broker(folder)
    client = LeanClient()
    back = asyncio.Event()

    async def on_back() -> None:
        back.set()

    await client.connect(
        broker.url, token=broker.token, reconnect_time_wait=0, reconnected_cb=on_back
    )
    await client.subscribe_direct("f", heard.receive)
    broker.kill()
    again = start_broker(folder, token=broker.token, port=broker.port)
    try:
        await asyncio.wait_for(back.wait(), 10)
        assert client.send("f", "r", "", b"after")
        assert (await heard.wait(1))[0][2] == b"after"
    finally:
        await client.close()
        again.stop()


class Recorder(LeanClient):
    """Writes down what its parser hands on."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[object, ...]] = []

    async def _process_msg(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes
    ) -> None:
        self.seen.append((sid, subject, reply, data, headers))

    async def _process_ping(self) -> None:
        self.seen.append(("ping",))


STREAM = (
    b"MSG a 1 5\r\nhello\r\n+OK\r\nMSG b 2 back 0\r\n\r\nPING\r\n"
    b"HMSG c 3 12 14\r\nNATS/1.0\r\n\r\nhi\r\nHMSG d 4 back 12 12\r\nNATS/1.0\r\n\r\n\r\n"
)
SEEN = [
    (1, b"a", b"", b"hello", b""),
    (2, b"b", b"back", b"", b""),
    ("ping",),
    (3, b"c", b"", b"hi", b"NATS/1.0\r\n\r\n"),
    (4, b"d", b"back", b"", b"NATS/1.0\r\n\r\n"),
]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 16, len(STREAM)])
async def test_a_stream_may_be_cut_anywhere(size: int) -> None:
    client = Recorder()
    parser = LeanParser(client)
    for at in range(0, len(STREAM), size):
        await parser.parse(STREAM[at : at + size])
    assert client.seen == SEEN


async def test_after_a_reset_the_rest_is_forgotten() -> None:
    client = Recorder()
    parser = LeanParser(client)
    await parser.parse(b"MSG a 1 5\r\nhel")
    parser.reset()
    await parser.parse(STREAM)
    assert client.seen == SEEN


async def test_what_is_no_protocol_is_an_error() -> None:
    with pytest.raises(ProtocolError):
        await LeanParser(Recorder()).parse(b"HTTP/1.1 200 OK\r\n")


async def test_its_messages_look_like_those_of_nats_py(plain: Client, bus: Bus) -> None:
    subscription = await plain.subscribe("g")
    await plain._flush_pending(force_flush=True)  # nats-py's own flush lets its ping go first
    await plain.flush()
    bus.nc.send("g", "reply", "A: 1\r\nB: two\r\n", b"data")
    await bus.nc.publish("g", b"data", reply="reply", headers={"A": "1", "B": "two"})
    ours, theirs = [await subscription.next_msg(5) for _ in range(2)]
    assert (ours.headers, ours.data, ours.reply) == (theirs.headers, theirs.data, theirs.reply)


async def test_after_a_flush_a_new_subscription_hears_everything(plain: Client, bus: Bus) -> None:
    for number in range(200):
        subscription = await bus.nc.subscribe(f"h{number}")
        await bus.flush()
        await plain.publish(f"h{number}", b"data")
        assert (await subscription.next_msg(5)).data == b"data"


def test_a_connection_that_has_just_broken_is_closed_without_a_word(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    broker = start_broker(tmp_path_factory.mktemp("broker"))

    async def close_broken() -> None:
        bus = await connect(BusSettings(url=broker.url, token=broker.token), name="test")
        bus.nc._transport._io_writer.transport.abort()
        bus.nc._pending, bus.nc._pending_data_size = [b"PING\r\n"], 6
        await bus.close()
        assert bus.nc.is_closed

    try:
        uvloop.run(close_broken())
    finally:
        broker.stop()
