"""`llamatape audit` on a database that no server has open."""

import asyncio
import json
import sqlite3
import sys
from pathlib import Path

import pytest

from services.cli.audit.run import run
from services.cli.errors import UsageError
from services.database.errors import DatabaseUnavailable
from services.streams.archive.store import open_archive
from tests.support.tampering import fill


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    async def make() -> list[str]:
        store = await open_archive(f"sqlite+aiosqlite:///{tmp_path / 'llamatape.db'}")
        ids = await fill(store)
        await store.close()
        return ids

    asyncio.run(make())
    return tmp_path


def audit(folder: Path, *words: str) -> int:
    return run([*words, "--data-dir", str(folder)])


def test_pages_follow_one_another(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found: list[str] = []
    after: list[str] = []
    while True:
        assert audit(folder, "list", "--json", "--limit", "5", *after) == 0
        shown = capsys.readouterr()
        found += [json.loads(line)["generation_id"] for line in shown.out.splitlines()]
        if "--after" not in shown.err:
            break
        after = ["--after", shown.err.split()[-1]]
    assert len(found) == len(set(found)) == 12
    assert audit(folder, "list", "--json", "--limit", "0") == 0
    assert [json.loads(line)["generation_id"] for line in capsys.readouterr().out.splitlines()] == (
        found
    )


def test_parquet_says_what_the_rows_say(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from pyarrow import parquet

    path = folder / "out.parquet"
    assert audit(folder, "export", "--format", "parquet", "-o", str(path)) == 0
    assert audit(folder, "export") == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    table = parquet.read_table(path)
    for row, found in zip(rows, table.to_pylist(), strict=True):
        assert json.loads(found["params"]) == row["params"]
        assert found["created_at_ms"].timestamp() * 1000 == pytest.approx(row["created_at_ms"])
        assert (found["n_predicted"], found["digest"]) == (row["n_predicted"], row["digest"])
        assert found["erased_at_ms"] is None


def test_without_pyarrow_it_says_what_to_do(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r"pip install 'llamatape\[parquet\]'"):
        audit(folder, "export", "--format", "parquet", "-o", str(folder / "x"))
    assert not (folder / "x").exists()


def test_what_cannot_be_exported(folder: Path) -> None:
    with pytest.raises(UsageError, match="--events"):
        audit(folder, "export", "--format", "parquet", "--events", "-o", str(folder / "x"))
    with pytest.raises(UsageError, match="cannot write"):
        audit(folder, "export", "-o", str(folder / "none" / "x"))


def test_a_database_without_an_archive(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no database"):
        audit(tmp_path, "list")
    assert list(tmp_path.iterdir()) == []
    sqlite3.connect(tmp_path / "llamatape.db").close()
    for words in (["list"], ["verify"], ["erase", "--caller", "k"]):
        with pytest.raises(DatabaseUnavailable, match="llamatape migrate"):
            audit(tmp_path, *words)


def test_erasing_says_that_there_is_no_broker(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert audit(folder, "list", "--json", "--limit", "1") == 0
    generation_id = json.loads(capsys.readouterr().out)["generation_id"]
    for _ in range(2):
        assert audit(folder, "erase", "--id", generation_id) == 0
        assert "The broker is not there" in capsys.readouterr().err
    assert audit(folder, "verify") == 0
    assert "13 links, intact" in capsys.readouterr().out
    assert audit(folder, "verify", "--id", generation_id) == 0
    assert "2 links, intact" in capsys.readouterr().out
