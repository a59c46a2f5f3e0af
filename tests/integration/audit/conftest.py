"""An archive of its own for each test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.streams.archive.store import ArchiveStore, open_archive
from services.streams.audit.store import AuditStore
from tests.support.tampering import fill


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite+aiosqlite:///{tmp_path / 'llamatape.db'}"


@pytest.fixture
async def archive(url: str) -> AsyncIterator[ArchiveStore]:
    opened = await open_archive(url)
    yield opened
    await opened.close()


@pytest.fixture
def audit_store(archive: ArchiveStore) -> AuditStore:
    return AuditStore(archive.engine)


@pytest.fixture
async def ids(archive: ArchiveStore) -> list[str]:
    """Generations in it, over three days."""
    return await fill(archive)
