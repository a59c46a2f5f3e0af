"""What tests in containers need: a Docker daemon, and our images."""

import asyncio
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from testcontainers.community.postgres import PostgresContainer

from services.bus.connection import connect
from services.database import migrate as migrations
from services.database.opening import migrate
from services.streams.archive.store import ArchiveStore, open_archive
from tests.support.containers import ContainerFleet, build_images
from tests.support.drill import Drill

READY_S = 60
FOLDER = Path(__file__).parent
SETUP_S = 600
"""The first test of all waits until the images are built, on a busy machine for minutes."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if FOLDER in item.path.parents:
            item.add_marker(pytest.mark.timeout(SETUP_S))


@pytest.fixture(scope="session")
def docker() -> None:
    """A daemon that answers; without it these tests skip, and in CI they fail."""
    try:
        command = ["docker", "version", "--format", "{{.Server.Version}}"]
        subprocess.run(command, check=True, capture_output=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        pytest.skip("no Docker daemon answers")


@pytest.fixture(scope="session")
def images(docker: None) -> None:
    build_images()


@pytest.fixture
async def drill(fleet: ContainerFleet) -> AsyncIterator[Drill]:
    """The module's `fleet`, whole again."""
    for member in (*fleet.nats.nodes.values(), *fleet.members.values()):
        member.container.reload()
        if member.container.status != "running":
            member.start()
    fleet.wait_ready()
    bus = await connect(fleet.nats.settings(), name="test")
    limits = httpx.Limits(max_keepalive_connections=0)
    async with httpx.AsyncClient(timeout=30, limits=limits) as http:
        yield Drill(fleet, bus, http)  # type: ignore[arg-type]
    await bus.close()


@pytest.fixture
async def url(postgres: PostgresContainer) -> str:
    """An empty database of today's schema."""
    found = postgres.get_connection_url()
    await migrate(found, READY_S)
    await asyncio.to_thread(migrations.downgrade, found, "0002")
    await migrate(found, READY_S)
    return found


@pytest.fixture
async def store(url: str) -> AsyncIterator[ArchiveStore]:
    opened = await open_archive(url)
    yield opened
    await opened.close()
