"""Builds the read side: the only place here that joins it to the bus."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator

from fastapi import APIRouter, FastAPI
from starlette.requests import Request
from starlette.responses import Response

from schemas import subjects
from schemas.lanes import BATCH, BATCH_CLASS, LIGHT
from services.bus.connection import Bus, unsubscribe
from services.bus.errors import BusError
from services.bus.kv import Bucket
from services.bus.log import LogWriter
from services.bus.open_tasks import OpenTask, open_tasks, remove_task
from services.bus.stored_logs import on_purged
from services.bus.tasks import publish_task
from services.edge.auth import install_auth
from services.edge.body import install_body_handlers
from services.edge.errors import JSON_TYPE, install_error_handlers
from services.edge.key_ring import KeyRing
from services.streams.archive.client import ArchiveClient
from services.streams.archived_logs import ArchivedLogs
from services.streams.config import StreamsSettings
from services.streams.conversations import Conversations
from services.streams.deadline import Deadlines
from services.streams.ending import LogEnder
from services.streams.forgotten import Forgotten
from services.streams.hub import Hub
from services.streams.keys import watching_keys
from services.streams.logs import BusLogs, Logs
from services.streams.routes import StreamRoutes
from services.streams.strays import Strays
from services.streams.sweep import Sweep
from services.streams.tape import Tape
from services.streams.unshown import Unshown


def create_hub(bus: Bus, settings: StreamsSettings) -> Hub:
    """The tapes of this process. Close it before the bus."""
    return Hub(create_logs(bus, settings), settings)


def create_logs(bus: Bus, settings: StreamsSettings) -> Logs:
    """All logs, hot and archived; the archive is asked over the bus, wherever it is."""
    hot = BusLogs(bus, silence_s=settings.silence_s)
    return ArchivedLogs(hot, ArchiveClient(bus).read)


def create_conversations(bus: Bus) -> Conversations:
    logs = create_logs(bus, StreamsSettings())
    return Conversations(Bucket(bus, subjects.CONVERSATIONS_BUCKET), logs)


def create_router(hub: Hub, conversations: Conversations, writer: LogWriter) -> APIRouter:
    """The routes of resumable streams.

    From now on every tape of `hub` that ends is noted in its conversation, and one that is read
    past its deadline is ended.
    """
    ender = LogEnder(hub.logs, writer)
    hub.when_opened(Deadlines(hub, ender).watch)

    def note_end(tape: Tape) -> None:
        hub.spawn(conversations.mark_tape_done(tape))

    hub.when_done(note_end)
    return StreamRoutes(hub, conversations, Forgotten(conversations.keys), ender).router()


class _BusQueue:
    """The work queue on the broker."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def open_tasks(self) -> list[OpenTask]:
        return await open_tasks(self._bus)

    async def remove(self, seq: int) -> None:
        await remove_task(self._bus, seq)

    async def send_to_all(self, found: OpenTask) -> None:
        lane = BATCH if found.task.priority == BATCH_CLASS else LIGHT
        await publish_task(self._bus, found.model_key, found.task, lane=lane, repeat=":any")


@contextlib.asynccontextmanager
async def sweeping(bus: Bus, hub: Hub, writer: LogWriter) -> AsyncGenerator[None]:
    """While inside, generations that are overdue and read by nobody are ended, and those that were
    taken off the broker leave the memory."""
    queue, conversations = _BusQueue(bus), Bucket(bus, subjects.CONVERSATIONS_BUCKET)
    helpers = (
        Unshown(conversations, hub.logs, LogEnder(hub.logs, writer)),
        Strays(queue, Bucket(bus, subjects.PRESENCE_BUCKET)),
    )
    sweep = Sweep(queue, hub.logs, writer, helpers=helpers)
    task = asyncio.create_task(sweep.run(), name="sweep")
    purged = await on_purged(bus, hub.forget)
    try:
        yield
    finally:
        await unsubscribe(purged)
        task.cancel()
        await asyncio.wait([task])


def create_app(bus: Bus, settings: StreamsSettings) -> FastAPI:
    """The streams service on its own; `bus` stays the caller's."""
    hub, writer = create_hub(bus, settings), LogWriter(bus)
    keys = KeyRing(
        settings.api_keys,
        admin_keys=settings.admin_api_keys,
        is_required=settings.requires_key,
    )

    @contextlib.asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncGenerator[None]:
        async with watching_keys(bus, keys), sweeping(bus, hub, writer):
            yield
        await hub.close()

    app = FastAPI(lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    install_error_handlers(app, unavailable=(BusError,))
    install_body_handlers(app)
    app.include_router(create_router(hub, create_conversations(bus), writer))
    for path in ("/health", "/v1/health"):
        app.router.add_route(path, _health, methods=["GET"])
    install_auth(app, keys)
    return app


async def _health(_request: Request) -> Response:
    return Response(b'{"status":"ok"}', media_type=JSON_TYPE)
