"""Wait until the api process answers GET /health with 200. A few bytes of HTTP, no client library."""

import asyncio
import contextlib
import socket

from services.cli.listen import WILDCARDS

POLL_S = 0.05
TIMEOUT_S = 2.0
_REQUEST = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


async def wait(listener: socket.socket) -> None:
    """Returns when it answers 200; never gives up."""
    while not await is_healthy(listener):  # noqa: ASYNC110 (it is another process's)
        await asyncio.sleep(POLL_S)


async def is_healthy(listener: socket.socket) -> bool:
    """Whether who accepts from `listener` answers 200 within 2 s."""
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(TIMEOUT_S):
            return b" 200 " in await _status_line(listener)
    return False


async def _status_line(listener: socket.socket) -> bytes:
    reader, writer = await _connect(listener)
    try:
        writer.write(_REQUEST)
        return await reader.readline()
    finally:
        writer.close()


async def _connect(listener: socket.socket) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    name = listener.getsockname()
    if listener.family == socket.AF_UNIX:
        return await asyncio.open_unix_connection(name)
    return await asyncio.open_connection(WILDCARDS.get(name[0], name[0]), name[1])
