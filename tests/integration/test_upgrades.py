"""Offers of another protocol are declined, and cost neither the body nor the connection."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from services.cli.http import SERVER_NAME, serving
from services.cli.upgrades import without_offer

OFFER = (
    b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAA\r\n"
)
WEBSOCKET = b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"


async def echo(request: Request) -> Response:
    return Response(await request.body())


@contextlib.asynccontextmanager
async def connection() -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    app = Starlette(routes=[Route("/", echo, methods=["GET", "POST"])])
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        async with serving(app, [listener]):
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            yield reader, writer
            writer.close()


def post(body: bytes, *headers: bytes) -> bytes:
    length = b"Content-Length: %d\r\n" % len(body)
    return b"".join([b"POST / HTTP/1.1\r\nHost: a\r\n", *headers, length, b"\r\n", body])


async def answer(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    (length,) = [line for line in head.split(b"\r\n") if line.startswith(b"content-length: ")]
    return head, await reader.readexactly(int(length.partition(b": ")[2]))


@pytest.mark.parametrize("offer", [OFFER, WEBSOCKET, OFFER.lower(), OFFER.upper()])
async def test_the_body_of_an_offer_arrives_and_the_connection_lives(offer: bytes) -> None:
    async with connection() as (reader, writer):
        for body in (b"one", b"two"):
            writer.write(post(body, offer))
            head, found = await answer(reader)
            assert (head.partition(b"\r\n")[0], found) == (b"http/1.1 200 ok", body)


async def test_head_and_body_may_come_apart() -> None:
    async with connection() as (reader, writer):
        head, _, _ = post(b"12345", OFFER).partition(b"\r\n\r\n")
        writer.write(head + b"\r\n\r\n")
        await writer.drain()
        writer.write(b"12345")
        assert (await answer(reader))[1] == b"12345"


async def test_a_body_may_speak_of_upgrades() -> None:
    body = b"a\r\nUpgrade: h2c\r\n\r\n"
    async with connection() as (reader, writer):
        writer.write(post(body))
        assert (await answer(reader))[1] == body
        writer.write(post(body, OFFER))
        assert (await answer(reader))[1] == body


async def test_the_server_says_what_it_is() -> None:
    async with connection() as (reader, writer):
        writer.write(post(b""))
        head, _ = await answer(reader)
        assert head.count(b"\r\nserver: " + SERVER_NAME.encode()) == 1


def test_what_offers_nothing_is_not_touched() -> None:
    data = b"GET /upgrade: HTTP/1.1\r\nHost: a\r\nX-Upgrade: no\r\n\r\nrest"
    assert without_offer(data) == data
