"""A gateway with the read side's routes, served by uvicorn on a loopback port of its own."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncGenerator
from typing import Any, NamedTuple

import httpx

from schemas import subjects
from services.bus.connection import Bus
from services.bus.log import LogWriter
from services.cli.http import serving
from services.gateway.bootstrap import create_app
from services.gateway.config import GatewaySettings
from services.streams.bootstrap import create_conversations, create_hub, create_router
from services.streams.config import StreamsSettings

MODEL = "tiny"
TIMEOUT_S = 10.0
POLL_S = 0.01


class Gateway(NamedTuple):
    """A running gateway. model_key: its own, so that tests of one broker do not meet."""

    url: str
    client: httpx.AsyncClient
    model_key: str


@contextlib.asynccontextmanager
async def running_gateway(
    bus: Bus, model_key: str = "", *, writer: LogWriter | None = None, **settings: Any
) -> AsyncGenerator[Gateway]:
    """Start a gateway with these settings, and stop it."""
    key = model_key or subjects.model_key(MODEL)
    gateway = GatewaySettings(model_key=key, model_name=MODEL, **settings)
    hub = create_hub(bus, StreamsSettings(linger_s=0.0))
    conversations = create_conversations(bus)
    writer = writer or LogWriter(bus, patience_s=1.0)
    app = create_app(bus, gateway, hub, conversations, writer)
    app.include_router(create_router(hub, conversations, writer))
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        async with serving(app, [listener]), httpx.AsyncClient(base_url=url, timeout=20) as client:
            yield Gateway(url, client, key)


async def healthy(gateway: Gateway, status: int = 200) -> httpx.Response:
    """The answer of /health as soon as it has that status."""
    async with asyncio.timeout(TIMEOUT_S):
        response = await gateway.client.get("/health")
        while response.status_code != status:  # as any load balancer would look
            await asyncio.sleep(POLL_S)
            response = await gateway.client.get("/health")
        return response


def frames_of(body: str) -> list[str]:
    """What stands after `data: ` in an event stream."""
    return [line.removeprefix("data: ") for line in body.splitlines() if line.startswith("data: ")]


def streamed_text(body: str) -> str:
    """The text that a stream of any dialect adds up to."""
    return "".join(_text_of(json.loads(frame)) for frame in frames_of(body) if frame != "[DONE]")


def _text_of(frame: dict[str, Any]) -> str:
    if "content" in frame:
        return frame["content"]
    if str(frame.get("type", "")).endswith("delta"):
        delta = frame["delta"]
        return delta if isinstance(delta, str) else delta.get("text", "")
    if not frame.get("choices"):
        return ""
    choice = frame["choices"][0]
    return choice.get("text") or (choice.get("delta") or {}).get("content") or ""
