"""uvicorn inside our own process: our signals, our sockets, a bounded end."""

import asyncio
import contextlib
import logging
import math
import socket
import ssl
from collections.abc import AsyncGenerator, Generator
from typing import TYPE_CHECKING

import uvicorn

from services.cli.cut_off import LOGGER, CutOff, Interrupted
from services.cli.errors import StartError
from services.cli.listen import BACKLOG
from services.cli.upgrades import StaysHttp

if TYPE_CHECKING:
    from starlette.types import ASGIApp

KEEP_ALIVE_S = 75
STARTED_POLL_S = 0.005
SERVER_NAME = "llama.cpp"
"""What llama-server calls itself; clients that know its API tell it by this."""
SHUTDOWN_S = 1
"""What answers have to end at least; without it even short ones are cut off."""


class Server(uvicorn.Server):
    """Leaves signals to the process, which stops its other parts too."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield

    async def run_on(self, sockets: list[socket.socket]) -> None:
        """Serve until `should_exit`; a start that failed has been logged and is not `started`."""
        with contextlib.suppress(SystemExit):  # uvicorn would end the process from inside the loop
            await self.serve(sockets)


@contextlib.asynccontextmanager
async def serving(
    app: "ASGIApp",
    sockets: list[socket.socket],
    tls: tuple[str, str] | None = None,
    *,
    grace_s: float = SHUTDOWN_S,
) -> AsyncGenerator[None]:
    """While inside, `app` answers on `sockets`. On the way out nobody is let in any more, and answers
    have `grace_s` seconds (1 at least) to end.

    tls: files of certificate and key. Raises StartError where they are no such things.
    """
    server = Server(_loaded(_config(app, tls, grace_s)))
    task = asyncio.create_task(server.run_on(sockets), name="http")
    with _filtered(CutOff()):
        try:
            await _until_started(server, task)
            yield
        finally:
            with _filtered(Interrupted()):
                server.should_exit = True
                await task
                # Uvicorn cancels the answers that are late, and does not wait for them to notice.
                if late := set(server.server_state.tasks):
                    await asyncio.wait(late, timeout=SHUTDOWN_S)


async def _until_started(server: Server, task: "asyncio.Task[None]") -> None:
    """Raises StartError when the application could not start."""
    while not server.started:
        if task.done():
            raise StartError("the HTTP server could not start; its log says why")
        await asyncio.sleep(STARTED_POLL_S)


@contextlib.contextmanager
def _filtered(by: logging.Filter) -> Generator[None]:
    uvicorn_log = logging.getLogger(LOGGER)
    uvicorn_log.addFilter(by)
    try:
        yield
    finally:
        uvicorn_log.removeFilter(by)


def _loaded(config: uvicorn.Config) -> uvicorn.Config:
    try:
        config.load()
    except ssl.SSLError as error:
        raise StartError(
            f"--ssl-cert-file {config.ssl_certfile} and --ssl-key-file {config.ssl_keyfile} "
            f"are no certificate and its key: {error.reason or error}"
        ) from None
    return config


def _config(app: "ASGIApp", tls: tuple[str, str] | None, grace_s: float) -> uvicorn.Config:
    cert, key = tls or (None, None)
    return uvicorn.Config(
        app,
        loop="none",
        http=StaysHttp,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=max(SHUTDOWN_S, math.ceil(grace_s)),
        server_header=False,
        headers=[("Server", SERVER_NAME)],
        date_header=False,
        ssl_certfile=cert,
        ssl_keyfile=key,
    )
