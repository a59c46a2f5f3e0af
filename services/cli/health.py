"""Wait until the api process answers GET /health with 200. A few bytes of HTTP, no client library."""

import asyncio
import contextlib
import socket
import ssl

from services.cli.listen import WILDCARDS

POLL_S = 0.05
TIMEOUT_S = 2.0
_REQUEST = "GET {}/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


async def wait(listener: socket.socket, *, prefix: str = "", is_tls: bool = False) -> None:
    """Returns when it answers 200; never gives up. prefix: of every path."""
    while not await is_healthy(listener, prefix=prefix, is_tls=is_tls):  # noqa: ASYNC110
        await asyncio.sleep(POLL_S)


async def is_healthy(listener: socket.socket, *, prefix: str = "", is_tls: bool = False) -> bool:
    """Whether who accepts from `listener` answers 200 within 2 s."""
    request = _REQUEST.format(prefix).encode()
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(TIMEOUT_S):
            return b" 200 " in await _status_line(
                listener, request, _trusting() if is_tls else None
            )
    return False


def _trusting() -> ssl.SSLContext:
    """It is our own process that answers: its certificate may be made out to any name."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


async def _status_line(
    listener: socket.socket, request: bytes, context: ssl.SSLContext | None
) -> bytes:
    reader, writer = await _connect(listener, context)
    try:
        writer.write(request)
        return await reader.readline()
    finally:
        writer.close()


async def _connect(
    listener: socket.socket, context: ssl.SSLContext | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    name = listener.getsockname()
    if listener.family == socket.AF_UNIX:
        server_name = "localhost" if context else None
        return await asyncio.open_unix_connection(name, ssl=context, server_hostname=server_name)
    return await asyncio.open_connection(WILDCARDS.get(name[0], name[0]), name[1], ssl=context)
