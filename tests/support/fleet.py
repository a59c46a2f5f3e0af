"""The platform spread out: every service a process of its own, around a broker that a test may kill."""

import signal
import sys
import time
from pathlib import Path

import httpx

from tests.support.nats_nodes import TOKEN, NatsNodes, free_ports
from tests.support.processes import Session

ROOT = Path(__file__).resolve().parents[2]
TINY = ROOT / "tests" / "models" / "stories-tiny.gguf"
READY_S = 60.0
POLL_S = 0.05
LISTENING = ("gateway", "streams")


class Service:
    """One process of the platform, started again under the same name and port as often as needed."""

    def __init__(self, name: str, command: str, folder: Path, env: dict[str, str]) -> None:
        self.name, self.command = name, command
        self._folder, self._env = folder, env
        self.port = free_ports(1)[0] if command in LISTENING else 0
        self.sessions: list[Session] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def session(self) -> Session:
        return self.sessions[-1]

    @property
    def is_running(self) -> bool:
        return bool(self.sessions) and self.session.process.poll() is None

    def start(self) -> None:
        line = [sys.executable, "-P", "-m", "services.cli", self.command]
        if self.port:
            line += ["--port", str(self.port)]
        self.sessions.append(Session(line, folder=self._folder, env=self._env))

    def send(self, number: signal.Signals) -> None:
        self.session.process.send_signal(number)

    def kill(self) -> None:
        """The process and, as a supervisor or a container's end would, all that it started."""
        self.session.__exit__()

    def stop(self, timeout_s: float = 20.0) -> int:
        """In order; its exit code."""
        return self.session.stop(signal.SIGTERM, timeout_s)

    def stderr(self) -> str:
        return "".join(session.stderr for session in self.sessions)


class Fleet:
    """Services by name: g0, g1 (gateways), e0, e1 (engines), s0 (streams), m0 (models)."""

    def __init__(self, nats: NatsNodes, folder: Path, **variables: str) -> None:
        self.nats = nats
        self._folder = folder
        self._env = {
            "PYTHONPATH": str(ROOT),
            "LLAMATAPE_NATS_URL": nats.settings().url,
            "LLAMATAPE_NATS_TOKEN": TOKEN,
            "LLAMATAPE_REPLICAS": str(nats.settings().n_replicas),
            "LLAMATAPE_DATABASE_URL": f"sqlite+aiosqlite:///{folder}/registry.db",
            "LLAMATAPE_LEASE_S": "2",
            "LLAMA_ARG_THREADS": "1",
            "OMP_NUM_THREADS": "1",
            **variables,
        }
        self.services: dict[str, Service] = {}

    def __enter__(self) -> "Fleet":
        return self

    def __exit__(self, *_: object) -> None:
        for service in self.services.values():
            for session in service.sessions:
                session.__exit__()

    def start(self, *names: str) -> list[Service]:
        """Start services; the first letter says what they are."""
        commands = {"g": "gateway", "e": "engine", "s": "streams", "m": "models"}
        started = [self._new(name, commands[name[0]]) for name in names]
        for service in started:
            service.start()
        return started

    def _new(self, name: str, command: str) -> Service:
        own = {"LLAMATAPE_ENGINE_ORDINAL": name[1:], "LLAMATAPE_ENGINE_ID": name}
        service = Service(
            name, command, self._folder, self._env | (own if command == "engine" else {})
        )
        self.services[name] = service
        return service

    def __getitem__(self, name: str) -> Service:
        return self.services[name]

    def of(self, command: str) -> list[Service]:
        return [service for service in self.services.values() if service.command == command]

    def ensure(self, *engines: str) -> None:
        """Exactly these engines run, and everything else that was ever started does."""
        for service in self.services.values():
            is_wanted = service.command != "engine" or service.name in engines
            if service.is_running != is_wanted:
                service.start() if is_wanted else service.stop()
        self.start(*(name for name in engines if name not in self.services))
        self.wait_ready(len(engines))

    def wait_ready(self, n_engines: int = 0) -> None:
        """Until every gateway serves, and so many engines tell their slots."""
        for service in self.of("gateway"):
            self.wait_for(service, n_engines)

    def wait_for(self, service: Service, n_engines: int = 0) -> None:
        deadline = time.monotonic() + READY_S
        with httpx.Client(base_url=service.url, timeout=10) as client:
            while not _is_ready(client, n_engines):
                assert time.monotonic() < deadline, service.stderr()
                time.sleep(POLL_S)


def _is_ready(client: httpx.Client, n_engines: int) -> bool:
    try:
        if client.get("/health").status_code != 200:
            return False
        if n_engines == 0:
            return True
        slots = client.get("/slots")
        return slots.status_code == 200 and len(slots.json()) >= n_engines * 4
    except httpx.TransportError:
        return False
