"""uvicorn inside our own process: a start that fails ends it, an end gives answers their time."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator, Iterator

import httpx
import pytest
from fastapi import FastAPI

from services.cli.errors import StartError
from services.cli.http import serving


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        yield sock


async def test_an_application_that_cannot_start_is_an_error(listener: socket.socket) -> None:
    """Not a process that listens and never answers."""

    @contextlib.asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncGenerator[None]:
        raise RuntimeError("no broker")
        yield

    with pytest.raises(StartError, match="could not start"):
        async with serving(FastAPI(lifespan=lifespan), [listener]):
            raise AssertionError


@pytest.mark.parametrize(("takes_s", "is_whole"), [(1.5, True), (30, False)])
async def test_answers_have_their_grace_time(
    listener: socket.socket, takes_s: float, is_whole: bool
) -> None:
    app, begun = FastAPI(), asyncio.Event()

    @app.get("/")
    async def answer() -> str:
        begun.set()
        await asyncio.sleep(takes_s)
        return "whole"

    url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
    async with httpx.AsyncClient(timeout=20) as client:
        async with serving(app, [listener], grace_s=2.5):
            asking = asyncio.create_task(client.get(url))
            await begun.wait()
        (found,) = await asyncio.gather(asking, return_exceptions=True)
        is_answered = isinstance(found, httpx.Response) and found.status_code == 200
        assert is_answered is is_whole
        with pytest.raises(httpx.ConnectError):
            await client.get(url)
