"""`llamatape serve` as a user runs it: real broker, database, api process and engine, the tiny model."""

import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.processes import Session, wait_gone

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "tests" / "models" / "stories-tiny.gguf"
LONG = {"prompt": "Once upon a time", "n_predict": 400, "temperature": 0, "stream": True}

Start = Callable[..., Session]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    sessions: list[Session] = []

    def begin(*flags: str) -> Session:
        line = [sys.executable, "-P", "-m", "services.cli", "serve", "-m", str(MODEL)]
        line += ["--data-dir", str(tmp_path / "data"), "--port", "0", "-c", "2048"]
        line += ["-t", "1", *flags]  # two threads wait for one another on a busy machine
        sessions.append(Session(line, folder=tmp_path, env={"PYTHONPATH": str(ROOT)}))
        return sessions[-1]

    yield begin
    for session in sessions:
        session.__exit__()


def client_of(session: Session) -> httpx.Client:
    found = re.search(r" at (http://\S+)", session.wait_for("Try:", 60))
    assert found
    return httpx.Client(base_url=found[1], timeout=30)


def complete(client: httpx.Client) -> str:
    answer = client.post("/completion", json=LONG | {"stream": False, "n_predict": 16})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["content"])


def replay(client: httpx.Client, conversation: str) -> bytes:
    answer = client.get("/v1/stream", params={"conv_id": conversation, "from": 0})
    assert answer.status_code == 200, answer.text
    return answer.content


def test_serves_and_leaves_nothing(start: Start) -> None:
    session = start()
    with client_of(session) as client:
        assert complete(client)
        assert client.get("/props").json()["total_slots"] == 4
    words = " ".join(session.members().values())
    for name in ("nats-server", " api", " engine", " decoder"):
        assert name in words
    began = time.monotonic()
    assert session.stop() == 0
    assert time.monotonic() - began < 5
    assert session.members() == {}
    assert "Traceback" not in session.stderr


def test_a_stop_while_streams_run_is_in_time(start: Start) -> None:
    session = start()
    request = LONG | {"n_predict": 1500}
    with client_of(session) as client, client.stream("POST", "/completion", json=request) as answer:
        next(answer.iter_bytes())
        began = time.monotonic()
        assert session.stop() == 0
        assert time.monotonic() - began < 5
    assert session.members() == {}
    assert "Traceback" not in session.stderr


def test_a_killed_launcher_takes_everything_with_it(start: Start) -> None:
    session = start()
    client_of(session).close()
    assert len(session.members()) >= 4
    session.process.kill()
    session.process.wait()
    assert session.wait_until_alone(3.0) == {}


def test_a_generation_survives_the_api_process(start: Start) -> None:
    session = start()
    with client_of(session) as client:
        expected = client.post("/completion", json=LONG).content
        head = {"X-Conversation-Id": "c1"}
        with client.stream("POST", "/completion", json=LONG, headers=head) as answer:
            first = next(answer.iter_bytes())
            os.kill(session.one("api"), signal.SIGKILL)
        whole = replay(client, "c1")
        assert whole.startswith(first)
        assert _contents(whole) == _contents(expected)
        assert complete(client)
    assert session.stop() == 0
    assert session.members() == {}


@pytest.mark.parametrize("name", ["engine", "decoder"])
def test_a_generation_survives_a_killed_engine(start: Start, name: str) -> None:
    session = start("--lease", "1")
    with client_of(session) as client:
        expected = client.post("/completion", json=LONG).content
        with client.stream("POST", "/completion", json=LONG) as answer:
            chunks = answer.iter_bytes()
            got = next(chunks)
            killed = session.one(name)
            os.kill(killed, signal.SIGKILL)
            assert wait_gone(killed, 2)
            got += b"".join(chunks)
        assert _contents(got) == _contents(expected)
    assert session.stop() == 0
    assert session.members() == {}


def test_a_restart_keeps_the_data(start: Start) -> None:
    session = start()
    with client_of(session) as client:
        answer = client.post("/completion", json=LONG, headers={"X-Conversation-Id": "c1"})
        before = answer.content
        assert replay(client, "c1") == before
    assert session.stop() == 0
    session = start()
    with client_of(session) as client:
        assert replay(client, "c1") == before
    assert session.stop() == 0
    assert session.members() == {}


def test_a_damaged_model_ends_the_start_with_one_line(start: Start, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(MODEL.read_bytes()[:200_000])
    session = start("-m", str(damaged))
    assert session.process.wait(30) == 1
    last = session.stderr.rstrip().splitlines()[-1]
    assert last.startswith("error: ")
    assert "Traceback" not in session.stderr
    assert session.members() == {}


def _contents(stream: bytes) -> str:
    return "".join(re.findall(r'"content":"((?:[^"\\]|\\.)*)"', stream.decode()))
