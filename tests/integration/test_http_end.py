"""Answers that end early: the client notices, the log says it in a line, nothing throws traces about."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncGenerator, AsyncIterator

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from services.cli.http import serving
from services.edge.sse import SseResponse
from services.streams.errors import StreamBroken


async def broken(_request: Request) -> Response:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"data: 1\n\n"
        raise StreamBroken("no more")

    return SseResponse(chunks())


async def endless(_request: Request) -> Response:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"data: 1\n\n"
        await asyncio.Event().wait()

    return SseResponse(chunks())


@contextlib.asynccontextmanager
async def site() -> AsyncGenerator[httpx.AsyncClient]:
    app = Starlette(routes=[Route("/broken", broken), Route("/endless", endless)])
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        async with httpx.AsyncClient(base_url=url) as client, serving(app, [listener]):
            yield client


async def test_a_stream_that_breaks_off_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    async with site() as client:
        with pytest.raises(httpx.RemoteProtocolError):
            await client.get("/broken")
    (record,) = [each for each in caplog.records if each.name == "uvicorn.error" and each.msg]
    assert record.getMessage() == "action=answer_cut_off error=StreamBroken('no more')"
    assert (record.levelno, record.exc_info) == (logging.WARNING, None)


async def test_an_open_stream_does_not_make_a_noise_at_the_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    async with contextlib.AsyncExitStack() as stack:
        client = await stack.enter_async_context(site())
        answer = await client.send(client.build_request("GET", "/endless"), stream=True)
        chunks = answer.aiter_bytes()
        assert await anext(chunks) == b"data: 1\n\n"
        reading = asyncio.ensure_future(anext(chunks))
    with pytest.raises(httpx.HTTPError):
        await reading
    assert [record for record in caplog.records if record.name == "uvicorn.error"] == []
