"""`/cors-proxy`: other servers through this one, and nothing of ours with it."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import NamedTuple

import httpx
import pytest

from services.bus.connection import Bus
from tests.support.gateway import Gateway, healthy, running_gateway
from tests.support.scripted_engine import ScriptedEngine

PREFIX = "x-llama-server-proxy-header-"


class Target(NamedTuple):
    """Another server. seen: requests, whole. replies: what it says to each, in order. gone: set when
    a client hangs up; hold: the end of replies waits for it."""

    url: str
    seen: list[str]
    replies: list[bytes]
    gone: asyncio.Event
    hold: asyncio.Event


@contextlib.asynccontextmanager
async def target() -> AsyncGenerator[Target]:
    seen: list[str] = []
    replies: list[bytes] = []
    gone, hold = asyncio.Event(), asyncio.Event()
    hold.set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = next(
            (line[16:] for line in head.splitlines() if line.startswith("Content-Length: ")), "0"
        )
        seen.append(head + (await reader.readexactly(int(length))).decode())
        writer.write(replies[len(seen) - 1])
        await writer.drain()
        if not hold.is_set():
            await reader.read()  # ends when the other side hangs up
            gone.set()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        yield Target(f"http://127.0.0.1:{port}", seen, replies, gone, hold)


@pytest.fixture
async def other() -> AsyncIterator[Target]:
    async with target() as running:
        yield running


@pytest.fixture
async def proxy(bus: Bus) -> AsyncIterator[Gateway]:
    async with running_gateway(bus, has_cors_proxy=True) as gateway:
        engine = ScriptedEngine(bus, gateway.model_key)
        await engine.start()
        await healthy(gateway)
        yield gateway
        await engine.stop()


def via(url: str) -> dict[str, str]:
    return {"url": url}


async def test_it_is_off_by_default(engine: ScriptedEngine, gateway: Gateway) -> None:
    for method in ("GET", "POST"):
        for path in ("/cors-proxy?url=http://127.0.0.1:1/", "/tools"):
            response = await gateway.client.request(method, path)
            assert response.status_code == 403
            assert response.json()["error"]["type"] == "feature_disabled"


async def test_a_post_goes_on_with_the_headers_that_are_named(
    proxy: Gateway, other: Target
) -> None:
    other.replies.append(
        b"HTTP/1.1 201 Made\r\nContent-Type: text/event-stream\r\nMcp-Session-Id: 7\r\n"
        b"Access-Control-Allow-Origin: nobody\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n"
    )
    headers = {"authorization": "Bearer ours", "cookie": "a=b", f"{PREFIX}authorization": "theirs"}
    response = await proxy.client.post(
        "/cors-proxy", params=via(f"{other.url}/mcp?x=1"), content=b"{}", headers=headers
    )
    assert (response.status_code, response.text) == (201, "hello world")
    assert response.headers["mcp-session-id"] == "7"
    assert response.headers.get("access-control-allow-origin") != "nobody"
    [request] = other.seen
    assert request.startswith("POST /mcp?x=1 HTTP/1.1\r\n")
    assert request.endswith("\r\n\r\n{}")
    assert "authorization: theirs\r\n" in request
    assert "ours" not in request
    assert "cookie" not in request.lower()


async def test_an_answer_without_a_body(proxy: Gateway, other: Target) -> None:
    other.replies.append(b"HTTP/1.1 204 No Content\r\n\r\n")
    response = await proxy.client.post("/cors-proxy", params=via(other.url))
    assert (response.status_code, response.content) == (204, b"")


async def test_a_redirect_is_followed_and_secrets_stay(proxy: Gateway, other: Target) -> None:
    async with target() as elsewhere:
        location = f"Location: {elsewhere.url}/b\r\nContent-Length: 0\r\n\r\n"
        other.replies.extend(
            [
                b"HTTP/1.1 307 There\r\nLocation: /a\r\nContent-Length: 0\r\n\r\n",
                b"HTTP/1.1 302 There\r\n" + location.encode(),
            ]
        )
        elsewhere.replies.append(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        response = await proxy.client.get(
            "/cors-proxy", params=via(other.url), headers={f"{PREFIX}authorization": "theirs"}
        )
        assert response.text == "ok"
        assert ["theirs" in request for request in other.seen] == [True, True]
        assert other.seen[1].startswith("GET /a ")
        assert "theirs" not in elsewhere.seen[0]


async def test_a_circle_ends(proxy: Gateway, other: Target) -> None:
    again = b"HTTP/1.1 302 There\r\nLocation: /\r\nContent-Length: 0\r\n\r\n"
    other.replies.extend([again] * 10)
    response = await proxy.client.get("/cors-proxy", params=via(other.url))
    assert response.status_code == 500
    assert "too many redirects" in response.json()["error"]["message"]
    assert len(other.seen) == 5


@pytest.mark.parametrize("reply", [b"", b"what?\r\n\r\n", b"HTTP/1.1 100 Continue\r\n\r\n"])
async def test_what_is_no_http(proxy: Gateway, other: Target, reply: bytes) -> None:
    other.replies.append(reply)
    response = await proxy.client.get("/cors-proxy", params=via(other.url))
    assert response.status_code == 500
    assert response.json()["error"]["message"].startswith("proxy error: ")


async def test_nobody_there(proxy: Gateway) -> None:
    response = await proxy.client.get("/cors-proxy", params=via("http://127.0.0.1:1/"))
    assert response.status_code == 500
    assert "cannot be reached" in response.json()["error"]["message"]


async def test_a_stream_comes_as_it_is_written_and_ends_with_its_client(
    proxy: Gateway, other: Target
) -> None:
    other.hold.clear()
    other.replies.append(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n")
    async with proxy.client.stream("GET", "/cors-proxy", params=via(other.url)) as response:
        assert await anext(response.aiter_bytes()) == b"data: 1\n\n"
    async with asyncio.timeout(10):
        await other.gone.wait()


async def test_bad_addresses_and_headers(proxy: Gateway, other: Target) -> None:
    for url in ("", "file:///etc/passwd", "http://user:secret@127.0.0.1/"):
        response = await proxy.client.get("/cors-proxy", params=via(url))
        assert response.status_code == 400
    odd = {f"{PREFIX}bad name": "x"}
    with contextlib.suppress(httpx.LocalProtocolError):
        response = await proxy.client.get("/cors-proxy", params=via(other.url), headers=odd)
        assert response.status_code == 400
