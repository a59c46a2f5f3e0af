"""The platform in containers of our own images, around NATS in one container or three."""

import contextlib
import fcntl
import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from docker.models.containers import Container
from testcontainers.core.container import DockerContainer
from testcontainers.core.network import Network

from services.bus.config import BusSettings
from tests.support.nats_nodes import TOKEN, free_ports

ROOT = Path(__file__).resolve().parents[2]
TAG = "test"
LOCK = Path(tempfile.gettempdir()) / "llamatape-images.lock"
LOOPBACK = {"options": {"com.docker.network.bridge.host_binding_ipv4": "127.0.0.1"}}
READY_S = 60.0
POLL_S = 0.1
NATS_IMAGE, NATS_PORT, HTTP_PORTS = "nats:2", 4222, {"gateway": 8080, "streams": 8081}

NATS_LEAKS = pytest.mark.filterwarnings(
    "ignore:Exception ignored in. <function StreamWriter:pytest.PytestUnraisableExceptionWarning"
)
"""Docker accepts for a broker that is gone; nats-py forgets to close what it connected to then."""

_NATS = """\
server_name: {name}
port: 4222
http: 8222
max_payload: 8MB
authorization {{ token: {token} }}
jetstream {{ store_dir: /data, limits {{ default_max_consumers: -1 }} }}
{cluster}
"""
_CLUSTER = 'cluster {{ name: tests, listen: "0.0.0.0:6222", routes: [{routes}] }}'


def compose(*words: str, project: str = "", env: dict[str, str] | None = None) -> str:
    """Run `docker compose` in the checkout; what it printed."""
    command = ["docker", "compose", *(["-p", project] if project else []), *words]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | {"LLAMATAPE_TAG": TAG} | (env or {}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}: {done.stdout}\n{done.stderr}"
    return done.stdout


def build_images() -> None:
    """Our images, built once however many workers want them."""
    with LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        compose("build")


class Member:
    """One container of the platform."""

    def __init__(self, name: str, made: DockerContainer, network: Network, port: int) -> None:
        self.name, self.port = name, port
        self._made, self._network = made, network

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def container(self) -> Container:
        return self._made.get_wrapped_container()

    def kill(self) -> None:
        self.container.kill()
        self.container.wait()

    def stop(self) -> int:
        """In order, as `docker stop` does; its exit code."""
        self.container.stop(timeout=20)
        return self.container.wait()["StatusCode"]

    def start(self) -> None:
        self.container.start()

    def cut_off(self) -> None:
        """Take it out of its network; it goes on running."""
        self._network._network.disconnect(self.container)

    def rejoin(self) -> None:
        self._network._network.connect(self.container, aliases=[self.name])

    @property
    def logs(self) -> str:
        return self.container.logs().decode()


class NatsMembers:
    """The brokers, as the test itself reaches them."""

    def __init__(self) -> None:
        self.nodes: dict[str, Member] = {}

    def settings(self) -> BusSettings:
        urls = ",".join(f"nats://127.0.0.1:{node.port}" for node in self.nodes.values())
        return BusSettings(url=urls, token=TOKEN, n_replicas=3 if len(self.nodes) > 1 else 1)


class ContainerFleet:
    """Members by name: n0… (brokers), m0, e0, e1, g0, g1, s0."""

    def __init__(self, folder: Path, n_nodes: int, lease_s: float) -> None:
        self._folder, self._n_nodes, self._lease_s = folder, n_nodes, lease_s
        self._stack = contextlib.ExitStack()
        self.nats = NatsMembers()
        self.members: dict[str, Member] = {}

    def __enter__(self) -> "ContainerFleet":
        with contextlib.ExitStack() as stack:
            self._stack = stack
            self._network = stack.enter_context(Network(docker_network_kw=LOOPBACK))
            for n in range(self._n_nodes):
                self._start_nats(n)
            for name in ("m0", "e0", "e1", "g0", "g1", "s0"):
                self._start_service(name)
            self.wait_ready()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def __getitem__(self, name: str) -> Member:
        return self.members[name]

    def wait_ready(self) -> None:
        """Until both gateways serve, and know two engines."""
        for name in ("g0", "g1"):
            wait_until(lambda url=self[name].url: _is_ready(url), self[name].logs)

    def _start_nats(self, n: int) -> None:
        name = f"n{n}"
        routes = ", ".join(f'"nats://n{i}:6222"' for i in range(self._n_nodes))
        cluster = _CLUSTER.format(routes=routes) if self._n_nodes > 1 else ""
        config = self._folder / f"{name}.conf"
        config.write_text(_NATS.format(name=name, token=TOKEN, cluster=cluster))
        made = DockerContainer(NATS_IMAGE).with_volume_mapping(str(config), "/nats.conf", "ro")
        self.nats.nodes[name] = self._run(name, made.with_command("-c /nats.conf"), NATS_PORT)

    def _start_service(self, name: str) -> None:
        command = {"m": "models", "e": "engine", "g": "gateway", "s": "streams"}[name[0]]
        kind = "engine" if command == "engine" else "services"
        made = DockerContainer(f"llamatape/{kind}:{TAG}")
        for key, value in self._environment(name).items():
            made = made.with_env(key, value)
        port = HTTP_PORTS.get(command, 0)
        words = f"{command} --host 0.0.0.0" if port else command
        self.members[name] = self._run(name, made.with_command(words), port)

    def _environment(self, name: str) -> dict[str, str]:
        urls = ",".join(f"nats://n{n}:{NATS_PORT}" for n in range(self._n_nodes))
        own = {"LLAMATAPE_ENGINE_ID": name, "LLAMATAPE_ENGINE_ORDINAL": name[1:]}
        return {
            "LLAMATAPE_NATS_URL": urls,
            "LLAMATAPE_NATS_TOKEN": TOKEN,
            "LLAMATAPE_REPLICAS": "3" if self._n_nodes > 1 else "1",
            "LLAMATAPE_LEASE_S": f"{self._lease_s:g}",
            "LLAMATAPE_SIMULATE": "tokens_per_s=80",
            "LLAMA_ARG_N_PARALLEL": "4",
            **(own if name[0] == "e" else {}),
        }

    def _run(self, name: str, made: DockerContainer, port: int) -> Member:
        made = made.with_network(self._network).with_network_aliases(name)
        host_port = free_ports(1)[0] if port else 0
        if port:  # fixed: a random one would change when the container starts again
            made = made.with_bind_ports(port, host_port)
        return Member(name, self._stack.enter_context(made), self._network, host_port)


def wait_until(is_true: Callable[[], bool], why: Any = "") -> None:
    deadline = time.monotonic() + READY_S
    while not is_true():
        assert time.monotonic() < deadline, why
        time.sleep(POLL_S)


def _is_ready(url: str) -> bool:
    with contextlib.suppress(httpx.TransportError), httpx.Client(base_url=url) as client:
        if client.get("/health").status_code == 200:
            slots = client.get("/slots")
            return slots.status_code == 200 and len(slots.json()) == 8
    return False
