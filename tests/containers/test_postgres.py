"""The registry on a real PostgreSQL: migrations, rows, and a database that goes away for a while."""

import asyncio
import dataclasses
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic import command
from sqlalchemy import text
from testcontainers.community.postgres import PostgresContainer

from schemas.keys import KeyLimits, KeyRecord
from schemas.lifecycle import FAILED, LOADED, LOADING
from services.database import migrate
from services.database.engine import create_engine, reading
from services.database.errors import DatabaseUnavailable
from services.database.opening import migrate as migrate_patiently
from services.database.schema import HEAD, current_revision
from services.models.catalog import ModelSpec
from services.models.errors import AmbiguousKey
from services.models.files import FileFacts, FileIdentity
from services.models.keys.minting import mint
from services.models.keys.store import open_keys
from services.models.lifecycle import Reason, Verdict
from services.models.registry import open_registry
from tests.support.nats_nodes import free_ports

ROOT = Path(__file__).resolve().parents[2]
SPEC = ModelSpec(key="key", name="tiny", path="/m.gguf", aliases=("a",), tags=("t",))
FILE = FileIdentity(path="/m.gguf", size_bytes=10, mtime_ns=1)
FACTS = FileFacts(digest="d" * 64, header={"general.architecture": "llama"})


@pytest.fixture(scope="module")
def postgres(docker: None) -> Iterator[PostgresContainer]:
    """With a fixed port, since a test starts it again."""
    made = PostgresContainer("postgres:15", driver="asyncpg")
    with made.with_bind_ports(5432, free_ports(1)[0]) as running:
        yield running


@pytest.fixture
def url(postgres: PostgresContainer) -> str:
    return postgres.get_connection_url()


async def revision_of(url: str) -> str:
    engine = create_engine(url)
    try:
        return await current_revision(engine)
    finally:
        await engine.dispose()


async def test_migrations_run_once_however_many_start(url: str) -> None:
    line = [sys.executable, "-P", "-m", "services.cli", "migrate"]
    env = os.environ | {"PYTHONPATH": str(ROOT), "LLAMATAPE_DATABASE_URL": url}
    started = [await asyncio.create_subprocess_exec(*line, env=env) for _ in range(3)]
    assert [await process.wait() for process in started] == [0, 0, 0]
    assert await revision_of(url) == HEAD
    await asyncio.to_thread(command.check, migrate.config(url))
    await asyncio.to_thread(migrate.downgrade, url, "base")
    assert await revision_of(url) == ""
    await migrate_patiently(url, 30)
    assert await revision_of(url) == HEAD


async def test_locks_of_a_stopped_process_do_not_last(url: str) -> None:
    engine = create_engine(url)
    async with reading(engine) as session:
        shown = await session.execute(text("SHOW idle_in_transaction_session_timeout"))
        assert shown.scalar_one() == "30s"
    await engine.dispose()


async def test_models_and_their_history(url: str) -> None:
    registry = await open_registry(url)
    await registry.register(SPEC, FILE, 1000)
    assert await registry.learn("key", FILE, FACTS)
    again = await registry.register(dataclasses.replace(SPEC, aliases=()), FILE, 2000)
    assert (again.created_at_ms, again.digest) == (1000, FACTS.digest)
    for at_ms, status in enumerate((LOADING, LOADED, FAILED), 1):
        verdict = Verdict(status=status, reason=Reason.ORDERED)
        assert await registry.record("key", verdict, at_ms)
    history = await registry.history("key")
    assert [change.to_status for change in history] == [LOADING, LOADED, FAILED]
    await registry.close()


async def test_api_keys(url: str) -> None:
    store = await open_keys(url)
    limits = KeyLimits(requests_per_minute=5, tokens_per_minute=10**9, concurrent=2)
    wanted = KeyRecord(id="", digest="", name="app", models=("tiny",), limits=limits)
    first, second = (mint(wanted, at_ms).record for at_ms in (1000, 2000))
    seen = [await store.stand()]
    for record in (first, second):
        await store.add(record)
        seen.append(await store.stand())
    assert await store.all() == [first, second]
    with pytest.raises(AmbiguousKey):
        await store.revoke("app", 3000)
    assert (await store.revoke(first.id, 3000)).revoked_at_ms == 3000
    seen.append(await store.stand())
    assert len(set(seen)) == 4
    await store.close()


async def test_a_database_that_goes_away_is_an_error_and_comes_back(
    url: str, postgres: PostgresContainer
) -> None:
    registry = await open_registry(url)
    before = await registry.status("key")
    container = postgres.get_wrapped_container()
    await asyncio.to_thread(container.kill)
    with pytest.raises(DatabaseUnavailable):
        await registry.status("key")
    with pytest.raises(DatabaseUnavailable):
        await migrate_patiently(url, 0.5)
    await asyncio.to_thread(container.start)
    await migrate_patiently(url, 30)
    assert await registry.status("key") == before
    await registry.close()
