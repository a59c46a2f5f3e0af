"""The audit as an operator uses it: beside a running `llamatape serve`, over HTTP and by command, and
after the server has gone."""

import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.platform import ROOT, SERVE, url_of
from tests.support.processes import Session

ADMIN_KEY, KEY = "sk-operator", "sk-client"
SIMULATED = "tokens_per_s=100,eos_after=30"
CHAT = {"messages": [{"role": "user", "content": "hello xylophone"}], "stream": True}
SECONDS = 20.0


def served(folder: Path, *flags: str) -> Session:
    line = [*SERVE, "--simulate", SIMULATED, "--data-dir", str(folder / "data"), "--port", "0"]
    line += ["--api-key", KEY, "--archive-sweep", "0.2", *flags]
    env = {"PYTHONPATH": str(ROOT), "LLAMATAPE_ADMIN_API_KEY": ADMIN_KEY}
    return Session(line, folder=folder, env=env)


def audit(folder: Path, *words: str) -> "subprocess.CompletedProcess[bytes]":
    """`llamatape audit …` on the server's data."""
    line = [sys.executable, "-P", "-m", "services.cli", "audit", *words]
    line += ["--data-dir", str(folder / "data")]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(line, env=env, check=False, capture_output=True, timeout=60)


def printed(folder: Path, *words: str) -> bytes:
    done = audit(folder, *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def client(url: str, key: str) -> httpx.Client:
    headers = {"Authorization": f"Bearer {key}"}
    return httpx.Client(base_url=url, headers=headers, timeout=60)


def chat(url: str, **changes: object) -> tuple[str, bytes]:
    """Id and bytes of an answer."""
    with client(url, KEY) as one:
        answer = one.post("/v1/chat/completions", json=CHAT | changes)
        assert answer.status_code == 200, answer.text
        return answer.headers["x-generation-id"], answer.content


def archived(url: str, generation_id: str) -> dict[str, Any]:
    """Its facts, once it is in the archive."""
    deadline = time.monotonic() + SECONDS
    with client(url, ADMIN_KEY) as one:
        while (answer := one.get(f"/v1/audit/generations/{generation_id}")).status_code == 404:
            assert time.monotonic() < deadline, answer.text
            time.sleep(0.05)
        assert answer.status_code == 200, answer.text
        return answer.json()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("audit")


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    with served(folder) as session:
        yield url_of(session)


def test_who_asked_what_and_was_told_what(url: str, folder: Path) -> None:
    generation_id, told = chat(url)
    facts = archived(url, generation_id)
    assert facts["caller"]
    assert (facts["outcome"], facts["dialect"], facts["n_predicted"]) == (
        "finished",
        "openai.chat",
        31,
    )
    assert printed(folder, "replay", generation_id, "--as", "client") == told
    assert b"xylophone" in printed(folder, "show", generation_id, "--events")
    assert json.loads(printed(folder, "show", generation_id, "--json")) == facts
    [row] = printed(folder, "list", "--json", "--id", generation_id).splitlines()
    assert json.loads(row)["output_hash"] == facts["output_hash"]
    assert generation_id.encode() in printed(folder, "list")


def test_a_body_is_replayed_as_it_was(url: str, folder: Path) -> None:
    generation_id, told = chat(url, stream=False)
    archived(url, generation_id)
    assert printed(folder, "replay", generation_id, "--as", "client") == told
    assert b"message_start" in printed(folder, "replay", generation_id, "--as", "anthropic")
    text = json.loads(told)["choices"][0]["message"]["content"]
    assert printed(folder, "replay", generation_id, "--speed", "0").decode() == f"{text}\n"


def test_it_is_typed_at_its_pace(url: str, folder: Path) -> None:
    generation_id, _ = chat(url)
    archived(url, generation_id)
    took: list[float] = []
    for speed in ("0", "0.1"):
        begun_at = time.monotonic()
        printed(folder, "replay", generation_id, "--speed", speed)
        took.append(time.monotonic() - begun_at)
    assert took[1] - took[0] > 1.5, "30 tokens at 100 a second, ten times as slow"


def test_only_the_operator(url: str) -> None:
    with client(url, KEY) as one:
        assert one.get("/v1/audit/generations").status_code == 403
    with client(url, "sk-unknown") as one:
        assert one.get("/v1/audit/generations").status_code == 401


def test_export(url: str, folder: Path) -> None:
    generation_id, _ = chat(url)
    archived(url, generation_id)
    lines = printed(folder, "export", "--events").splitlines()
    found = {facts["generation_id"]: facts for facts in map(json.loads, lines)}
    assert found[generation_id]["events"][0]["events"][0]["type"] == "requested"
    path = folder / "export.parquet"
    printed(folder, "export", "--format", "parquet", "--output", str(path))
    from pyarrow import parquet

    table = parquet.read_table(path)  # pyright: ignore[reportUnknownMemberType]
    assert set(found) <= set(table.column("generation_id").to_pylist())
    assert str(table.schema.field("created_at_ms").type) == "timestamp[ms, tz=UTC]"


def test_erasure_and_verification(url: str, folder: Path) -> None:
    kept, _ = chat(url)
    erased, _ = chat(url)
    archived(url, kept)
    archived(url, erased)
    assert printed(folder, "erase", "--id", erased).decode().strip() == f"{erased} is erased"
    assert audit(folder, "replay", erased).returncode == 1
    with client(url, KEY) as one:
        answer = one.get(f"/v1/generations/{erased}/stream")
        assert b"xylophone" not in answer.content
    with client(url, ADMIN_KEY) as one:
        answer = one.post("/v1/audit/verify", json={})
    verdict = json.loads(answer.text.splitlines()[-1])
    assert verdict["is_intact"] is True
    last = printed(folder, "verify").decode().splitlines()[-1]
    assert last == f"head {verdict['head']}"
    printed(folder, "verify", "--expect-head", verdict["head"], "--json")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["show", "01936b5e-4c00-7abc-8def-0123456789ab"], 1),
        (["list", "--outcome", "unknown"], 1),
        (["list", "--after", "x"], 1),
        (["verify", "--expect-head", f"2030-01-01/0:{'0' * 64}"], 2),
        (["nothing"], 1),
    ],
)
def test_what_cannot_be_done_is_one_line(
    url: str, folder: Path, words: list[str], code: int
) -> None:
    done = audit(folder, *words)
    assert done.returncode == code, done.stderr
    if code == 1:
        assert done.stderr.startswith(b"error: ")
        assert len(done.stderr.splitlines()) == 1


def test_when_the_server_has_gone(tmp_path: Path) -> None:
    """Nothing of a caller that is not to be recorded is in the database; what was falsified is found;
    what was erased without a broker is gone from it after the next start."""
    with served(tmp_path, "--record-content", "none") as session:
        generation_id, _ = chat(url_of(session))
        facts = archived(url_of(session), generation_id)
        assert (facts["content"], facts["output_hash"]) == ("none", "")
        session.stop()
    database = tmp_path / "data" / "llamatape.db"
    files = list(database.parent.glob("llamatape.db*"))
    assert not any(b"xylophone" in path.read_bytes() for path in files)
    assert audit(tmp_path, "erase", "--id", generation_id).returncode == 0
    with served(tmp_path, "--durable") as session:
        url = url_of(session)
        with client(url, KEY) as one:
            deadline = time.monotonic() + SECONDS
            path = f"/v1/generations/{generation_id}/stream"
            while one.get(path).status_code == 200:
                assert time.monotonic() < deadline, "the server erases it"
                time.sleep(0.05)
        chat(url)
        session.stop()
    assert audit(tmp_path, "verify").returncode == 0
    with sqlite3.connect(database) as connection:
        connection.execute("UPDATE archived_generations SET caller = 'x'")
    connection.close()
    done = audit(tmp_path, "verify")
    assert done.returncode == 2
    assert b"changed_row" in done.stdout
