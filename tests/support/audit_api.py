"""The audit's routes as a process serves them, asked without a socket."""

import contextlib
from collections.abc import AsyncGenerator

import httpx
from fastapi import FastAPI

from services.bus.connection import Bus
from services.bus.errors import BusError
from services.bus.log import LogWriter
from services.edge.auth import install_auth
from services.edge.body import install_body_handlers
from services.edge.errors import install_error_handlers
from services.edge.key_ring import KeyRing
from services.streams.audit.bootstrap import auditing
from services.streams.bootstrap import create_conversations

ADMIN_KEY, OTHER_KEY = "sk-operator", "sk-client"


@contextlib.asynccontextmanager
async def audit_api(
    bus: Bus, url: str, keys: KeyRing | None = None
) -> AsyncGenerator[httpx.AsyncClient]:
    """A client that sends the admin key. url: of the archive's database."""
    ring = keys or KeyRing([OTHER_KEY], admin_keys=[ADMIN_KEY])
    app = FastAPI()
    install_error_handlers(app, unavailable=(BusError,))
    install_body_handlers(app)
    install_auth(app, ring)
    async with auditing(bus, LogWriter(bus), create_conversations(bus), url) as router:
        app.include_router(router)
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        headers = {"Authorization": f"Bearer {ADMIN_KEY}"}
        async with httpx.AsyncClient(
            transport=transport, base_url="http://audit", headers=headers
        ) as client:
            yield client
