"""Each service alone on one broker and one database: two gateways, two engines, models, streams."""

import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from services.cli.broker import Broker
from tests.support.processes import Session, wait_gone

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "tests" / "models" / "stories-tiny.gguf"
CHAT = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 60, "temperature": 0}
STREAM = CHAT | {"stream": True}
ADMIN_KEY = "sk-operator"


class Fleet:
    """The services of one test, each a process of its own."""

    def __init__(self, broker: Broker, folder: Path) -> None:
        self._folder = folder
        self._env = os.environ | {
            "PYTHONPATH": str(ROOT),
            "LLAMATAPE_NATS_URL": broker.url,
            "LLAMATAPE_NATS_TOKEN": broker.token,
            "LLAMATAPE_DATABASE_URL": f"sqlite+aiosqlite:///{folder}/registry.db",
            "LLAMATAPE_LEASE_S": "1",
            "LLAMATAPE_ADMIN_API_KEY": ADMIN_KEY,
            "LLAMA_ARG_MODEL": str(MODEL),
            "LLAMA_ARG_CTX_SIZE": "1024",
            "LLAMA_ARG_THREADS": "1",
        }
        self.sessions: list[Session] = []

    def start(self, command: str, *flags: str) -> Session:
        line = [sys.executable, "-P", "-m", "services.cli", command, *flags]
        self.sessions.append(Session(line, folder=self._folder, env=self._env))
        return self.sessions[-1]

    def serve(self, command: str) -> httpx.Client:
        """Start something that listens, on a port that the system chooses."""
        session = self.start(command, "--port", "0")
        return httpx.Client(base_url=_address(session), timeout=30)


def _address(session: Session) -> str:
    deadline = time.monotonic() + 20
    while not (found := re.search(r"action=listening url=(\S+)", session.stderr)):
        assert time.monotonic() < deadline, session.stderr
        assert not wait_gone(session.process.pid, 0.02), session.stderr
    return found[1]


@pytest.fixture
def fleet(nats_server: Broker, tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(nats_server, tmp_path)
    yield fleet
    for session in fleet.sessions:
        session.__exit__()


def _wait_until_ready(client: httpx.Client) -> None:
    deadline = time.monotonic() + 30
    while client.get("/health").status_code != 200:
        assert time.monotonic() < deadline


def _archived(client: httpx.Client, generation_id: str) -> dict[str, object]:
    """The facts of a generation, once they are in the archive."""
    head = {"Authorization": f"Bearer {ADMIN_KEY}"}
    path, deadline = f"/v1/audit/generations/{generation_id}", time.monotonic() + 30
    while (answer := client.get(path, headers=head)).status_code in (404, 503):
        assert time.monotonic() < deadline, answer.text
        time.sleep(0.05)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_one_gateway_replays_what_another_streamed(fleet: Fleet) -> None:
    fleet.start("models")
    engines = [fleet.start("engine", "--ordinal", str(ordinal)) for ordinal in (0, 1)]
    first, second, reader = (fleet.serve(name) for name in ("gateway", "gateway", "streams"))
    with first, second, reader:
        _wait_until_ready(first)
        _wait_until_ready(second)
        head = {"X-Conversation-Id": "shared"}
        answer = first.post("/v1/chat/completions", json=STREAM, headers=head)
        assert answer.status_code == 200
        assert answer.content.rstrip().endswith(b"data: [DONE]")
        for client in (first, second, reader):
            replayed = client.get("/v1/stream", params={"conv_id": "shared", "from": 10})
            assert replayed.content == answer.content[10:]
        generation_id = answer.headers["x-generation-id"]
        facts = [_archived(client, generation_id) for client in (reader, first, second)]
        assert facts[0]["outcome"] == "finished"
        assert facts[0] == facts[1] == facts[2]
        assert first.get(f"/v1/audit/generations/{generation_id}").status_code == 403
        engines[0].process.kill()
        engines[0].process.wait()
        answer = second.post("/v1/chat/completions", json=CHAT)
        assert answer.status_code == 200, answer.text
    for session in fleet.sessions:
        if session is not engines[0]:
            assert session.stop() == 0, session.stderr
        assert session.wait_until_alone(3) == {}
