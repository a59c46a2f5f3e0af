"""Migrations on a real SQLite file: complete, reversible, safe when many start at once."""

import asyncio
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest
from alembic import command
from alembic.script import ScriptDirectory
from sqlalchemy import text

from services.database import migrate
from services.database.engine import create_engine, reading, transaction
from services.database.errors import DatabaseUnavailable, SchemaTooNew
from services.database.opening import open_database
from services.database.schema import HEAD, current_revision, ensure_schema
from services.models.registry import open_registry

TABLES = {
    "api_keys",
    "archive_cursor",
    "archived_events",
    "archived_generations",
    "audit_chain",
    "downloads",
    "models",
    "model_states",
    "model_transitions",
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "folder that is not there" / "llamatape.db"


@pytest.fixture
def url(path: Path) -> str:
    return f"sqlite+aiosqlite:///{path}"


def tables(path: Path) -> set[str]:
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        return {name for (name,) in rows} - {"alembic_version", "sqlite_sequence"}


async def revision_of(url: str) -> str:
    engine = create_engine(url)
    try:
        return await current_revision(engine)
    finally:
        await engine.dispose()


def test_the_models_agree_with_the_migrations(url: str) -> None:
    migrate.upgrade(url)
    command.check(migrate.config(url))  # raises where autogenerate would write something


def test_a_difference_would_be_found(url: str, path: Path) -> None:
    migrate.upgrade(url)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("ALTER TABLE models DROP COLUMN digest")
    with pytest.raises(Exception, match="New upgrade operations"):
        command.check(migrate.config(url))


def test_down_and_up_again(url: str, path: Path) -> None:
    migrate.upgrade(url)
    assert tables(path) == TABLES
    migrate.downgrade(url, "base")
    assert tables(path) == set()
    migrate.upgrade(url)
    assert tables(path) == TABLES


def test_the_head_that_the_code_knows_is_the_newest_migration(url: str) -> None:
    scripts = ScriptDirectory.from_config(migrate.config(url))
    assert scripts.get_heads() == [HEAD]
    assert all(len(script.revision) == 4 for script in scripts.walk_revisions())


def test_postgresql_gets_sql_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    command.upgrade(migrate.config("postgresql+asyncpg://host/name"), "head", sql=True)
    sql = capsys.readouterr().out
    assert "BIGSERIAL" in sql
    assert all(f"CREATE TABLE {name}" in sql for name in TABLES)


async def test_an_up_to_date_database_needs_no_alembic(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await (await open_registry(url)).close()
    monkeypatch.setattr(migrate, "upgrade", None)
    await (await open_registry(url)).close()
    assert await revision_of(url) == HEAD


async def test_a_database_of_a_later_version_is_refused(url: str) -> None:
    await (await open_registry(url)).close()
    engine = create_engine(url)
    async with transaction(engine) as session:
        await session.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(SchemaTooNew, match="9999"):
        await ensure_schema(engine)
    await engine.dispose()


@pytest.mark.parametrize(
    "url", ["nonsense", "sqlite+nonsense:///x", "sqlite+aiosqlite:////proc/nowhere/x.db"]
)
async def test_a_database_that_cannot_be_used_is_one_kind_of_error(url: str) -> None:
    with pytest.raises(DatabaseUnavailable):
        await open_registry(url)


START = """
import asyncio, sys
from services.models.registry import open_registry
async def main():
    await (await open_registry(sys.argv[1])).close()
asyncio.run(main())
"""


async def test_several_processes_may_start_at_once(url: str, path: Path) -> None:
    command = (sys.executable, "-W", "error", "-c", START, url)
    processes = [await asyncio.create_subprocess_exec(*command) for _ in range(4)]
    assert await asyncio.gather(*(process.wait() for process in processes)) == [0] * 4
    assert tables(path) == TABLES
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


async def test_several_parts_of_one_process_open_it_at_once(url: str) -> None:
    engines = await asyncio.gather(*(open_database(url) for _ in range(4)))
    for engine in engines:
        await engine.dispose()
    assert await revision_of(url) == HEAD


async def test_a_reader_waits_for_no_writer(url: str) -> None:
    engine = await open_database(url)
    query = text("SELECT seq FROM archive_cursor WHERE name = 'chain'")
    async with transaction(engine) as writing:
        await writing.execute(text("UPDATE archive_cursor SET seq = 7 WHERE name = 'chain'"))
        async with asyncio.timeout(5), reading(engine) as session:
            assert (await session.execute(query)).scalar_one() == 0
    async with reading(engine) as session:
        assert (await session.execute(query)).scalar_one() == 7
    await engine.dispose()
