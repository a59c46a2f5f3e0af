"""A database of its own for each test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.bus.connection import Bus
from services.streams.archive.store import ArchiveStore, open_archive
from tests.support.archive import Rig


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite+aiosqlite:///{tmp_path / 'archive.db'}"


@pytest.fixture
async def store(url: str) -> AsyncIterator[ArchiveStore]:
    opened = await open_archive(url)
    yield opened
    await opened.close()


@pytest.fixture
def rig(bus: Bus, store: ArchiveStore) -> Rig:
    return Rig(bus, store)
