"""The SSE response against a recording ASGI server."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from starlette.types import Message

from services.edge.sse import SseResponse


class Server:
    """What an ASGI server does: records messages; `hang_up` is the client going away."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.hang_up = asyncio.Event()
        self.on_body = asyncio.Event()

    async def receive(self) -> Message:
        await self.hang_up.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        self.sent.append(message)
        if message.get("body"):
            self.on_body.set()

    @property
    def body(self) -> list[bytes]:
        return [m["body"] for m in self.sent if m["type"] == "http.response.body"]


class Source:
    """Chunks, then (`is_endless`) nothing more, for ever."""

    def __init__(self, *chunks: bytes, is_endless: bool = False) -> None:
        self.chunks = chunks
        self.is_endless = is_endless
        self.is_closed = False

    async def read(self) -> AsyncIterator[bytes]:
        try:
            for chunk in self.chunks:
                yield chunk
            if self.is_endless:
                await asyncio.Event().wait()
        finally:
            self.is_closed = True


async def test_chunks_become_body_messages_one_each() -> None:
    server, source = Server(), Source(b"a", b"b")
    await SseResponse(source.read())({}, server.receive, server.send)
    assert server.body == [b"a", b"b", b""]
    assert [m.get("more_body") for m in server.sent] == [None, True, True, False]
    assert source.is_closed


async def test_headers_are_llama_servers() -> None:
    server = Server()
    await SseResponse(Source().read(), headers={"x-a": "b"})({}, server.receive, server.send)
    assert server.sent[0]["status"] == 200
    assert dict(server.sent[0]["headers"]) == {
        b"content-type": b"text/event-stream",
        b"cache-control": b"no-cache",
        b"x-accel-buffering": b"no",
        b"x-a": b"b",
    }


async def test_a_client_that_hangs_up_ends_the_stream_and_is_reported_once() -> None:
    server, source = Server(), Source(b"a", is_endless=True)
    gone: list[bool] = []

    async def on_disconnect() -> None:
        gone.append(source.is_closed)

    response = SseResponse(source.read(), on_disconnect=on_disconnect)
    running = asyncio.create_task(response({}, server.receive, server.send))
    await server.on_body.wait()
    server.hang_up.set()
    await running
    assert gone == [True], "called once, after the source was closed"
    assert server.body == [b"a"], "no last chunk: the answer was not complete"


async def test_a_complete_answer_is_no_disconnect() -> None:
    server = Server()
    gone: list[bool] = []

    async def on_disconnect() -> None:
        gone.append(True)

    response = SseResponse(Source(b"a").read(), on_disconnect=on_disconnect)
    await response({}, server.receive, server.send)
    server.hang_up.set()
    assert gone == []


async def test_a_server_that_stops_is_no_disconnect() -> None:
    server, source = Server(), Source(b"a", is_endless=True)
    gone: list[bool] = []

    async def on_disconnect() -> None:
        gone.append(True)

    response = SseResponse(source.read(), on_disconnect=on_disconnect)
    running = asyncio.create_task(response({}, server.receive, server.send))
    await server.on_body.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert gone == []
    assert source.is_closed


async def test_an_error_of_the_source_reaches_the_server() -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"a"
        raise RuntimeError("lost")

    server = Server()
    with pytest.raises(RuntimeError, match="lost"):
        await SseResponse(broken())({}, server.receive, server.send)
    assert server.body == [b"a"]


async def test_no_task_is_left_behind() -> None:
    before = asyncio.all_tasks()
    server = Server()
    await SseResponse(Source(b"a").read())({}, server.receive, server.send)
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before


class StuckServer(Server):
    """A client that takes `n_chunks`, then nothing."""

    def __init__(self, n_chunks: int) -> None:
        super().__init__()
        self.n_chunks = n_chunks

    async def send(self, message: Message) -> None:
        if message.get("body") and len(self.body) == self.n_chunks:
            await asyncio.Event().wait()
        await super().send(message)


async def test_a_client_that_takes_nothing_is_given_up() -> None:
    server, source = StuckServer(1), Source(b"a", b"b", b"c")
    gone: list[bool] = []

    async def on_disconnect() -> None:
        gone.append(source.is_closed)

    response = SseResponse(source.read(), on_disconnect=on_disconnect, stall_s=0.01)
    await asyncio.wait_for(response({}, server.receive, server.send), 5)
    assert (server.body, gone) == ([b"a"], [True])


async def test_one_that_waits_for_more_is_not() -> None:
    server, source = Server(), Source(b"a", is_endless=True)
    response = SseResponse(source.read(), stall_s=0.01)
    streaming = asyncio.create_task(response({}, server.receive, server.send))
    await asyncio.wait([streaming], timeout=0.1)
    assert not streaming.done()
    server.hang_up.set()
    await streaming
    assert server.body == [b"a"]
