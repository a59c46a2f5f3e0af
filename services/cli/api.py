"""The processes that serve HTTP or the registry: `api` (all in one), `gateway`, `streams`, `models`.

Each is a set of parts entered in order and left in reverse; nothing is imported before it is needed.
"""

import asyncio
import contextlib
import gc
import logging
import signal
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

import uvloop

from services import logs
from services.bus.connection import Bus, connect
from services.bus.topology import ensure_topology
from services.cli import lifeline, listen, log_setup, settings
from services.cli.flags import Values
from services.cli.values import texts

if TYPE_CHECKING:
    from starlette.types import ASGIApp

log = logging.getLogger(__name__)

BROKER_TIMEOUT_S = 30.0
PATIENCE_S = 5.0
"""How long a request waits for a broker that is away before it is answered with 503."""

Part = Callable[[Bus, Values], AbstractAsyncContextManager[None]]


def run(name: str, values: Values) -> int:
    """Run one of these processes until SIGTERM or SIGINT. Raises LlamatapeError."""
    lifeline.hold()
    log_setup.configure(name, values)
    parts: dict[str, Part] = {
        "api": _api,
        "gateway": _gateway,
        "streams": _streams,
        "models": _models,
    }
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(name, values, parts[name]))
    return 0


async def _run(name: str, values: Values, part: Part) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    bus = await connect(settings.bus_settings(values), name=name, timeout_s=BROKER_TIMEOUT_S)
    try:
        await ensure_topology(bus)
        async with part(bus, values):
            gc.collect()
            gc.freeze()
            await stopped.wait()
    finally:
        await bus.close()


@contextlib.asynccontextmanager
async def _api(bus: Bus, values: Values) -> AsyncGenerator[None]:
    from services.models.keys.glance import has_keys
    from services.streams.archive.bootstrap import archiving

    archive = settings.archive_settings(values, is_embedded=True)
    url = archive.database_url
    if has_keys(settings.database_url(values)):
        # Nobody is let in while the bus does not know the keys yet.
        values = values | {"require_api_key": True}
    async with _models(bus, values), archiving(bus, archive), _http(bus, values, url):
        yield


@contextlib.asynccontextmanager
async def _models(bus: Bus, values: Values) -> AsyncGenerator[None]:
    from services.models.bootstrap import run_listing, run_models

    models = settings.models_settings(values)
    async with run_listing(bus, models) if models.is_router else run_models(bus, models):
        yield


@contextlib.asynccontextmanager
async def _gateway(bus: Bus, values: Values) -> AsyncGenerator[None]:
    url = settings.archive_settings(values, is_embedded=False).database_url
    async with _http(bus, values, url):
        yield


@contextlib.asynccontextmanager
async def _http(bus: Bus, values: Values, archive_url: str) -> AsyncGenerator[None]:
    """The HTTP API; it reads logs itself, so it serves the read side's routes too. archive_url: of
    the archive's database, for the audit; empty where it is not known here."""
    from services.bus.log import LogWriter
    from services.gateway.bootstrap import create_app
    from services.streams.audit.bootstrap import auditing
    from services.streams.bootstrap import (
        create_conversations,
        create_hub,
        create_router,
        sweeping,
    )

    gateway = settings.gateway_settings(values)
    hub = create_hub(bus, settings.streams_settings(values))
    conversations, writer = create_conversations(bus), LogWriter(bus, patience_s=PATIENCE_S)
    app = create_app(bus, gateway, hub, conversations, writer)
    app.include_router(create_router(hub, conversations, writer))
    async with auditing(bus, writer, conversations, archive_url) as audit:
        app.include_router(audit)
        async with sweeping(bus, hub, writer), _serving(app, values, gateway.port):
            yield


@contextlib.asynccontextmanager
async def _streams(bus: Bus, values: Values) -> AsyncGenerator[None]:
    from services.bus.log import LogWriter
    from services.streams.archive.bootstrap import archiving
    from services.streams.audit.bootstrap import auditing
    from services.streams.bootstrap import create_app, create_conversations

    streams = settings.streams_settings(values)
    archive = settings.archive_settings(values, is_embedded=False)
    app, conversations, writer = create_app(bus, streams), create_conversations(bus), LogWriter(bus)
    async with auditing(bus, writer, conversations, archive.database_url) as audit:
        app.include_router(audit)
        async with archiving(bus, archive), _serving(app, values, streams.port):
            yield


@contextlib.asynccontextmanager
async def _serving(app: "ASGIApp", values: Values, port: int) -> AsyncGenerator[None]:
    """HTTP on the sockets of the launcher, else on our own. Raises StartError."""
    from services.cli.http import serving

    grace_s = settings.drain_grace(values)
    passed, tls = listen.inherited(), settings.tls_files(values)
    hosts, is_shared = texts(values, "host"), bool(values["reuse_port"])
    sockets = passed or listen.open_sockets(hosts, port, is_shared=is_shared)
    try:
        async with serving(app, sockets, tls, grace_s=grace_s):
            for sock in sockets:
                logs.event(log, "listening", url=listen.url_of(sock, is_tls=tls is not None))
            yield
    finally:
        if not passed:
            listen.close_sockets(sockets)
