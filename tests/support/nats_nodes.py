"""Real nats-servers on loopback, one or a cluster, that a test may kill, stop and start again."""

import json
import signal
import socket
import subprocess
import time
import urllib.request
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from services.bus.config import BusSettings
from services.cli.broker import find_nats_server

HOST = "127.0.0.1"
TOKEN = "t0k3n"
READY_TIMEOUT_S = 30.0
POLL_S = 0.02

_CONFIG = """\
server_name: {name}
listen: "{host}:{port}"
http: "{host}:{http_port}"
max_payload: 8MB
max_pending: 256MB
authorization {{ token: {token} }}
jetstream {{ store_dir: {store}, limits {{ default_max_consumers: -1 }} }}
{cluster}"""
_CLUSTER = """\
cluster {{ name: tests, listen: "{host}:{port}", routes: [{routes}] }}
"""


def free_ports(n: int) -> list[int]:
    """Ports that nobody listens on now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(n)]
        for sock in sockets:
            sock.bind((HOST, 0))
        return [sock.getsockname()[1] for sock in sockets]


@dataclass
class NatsNode:
    """One server. ports: for clients, for monitoring, for the other nodes."""

    name: str
    folder: Path
    ports: tuple[int, int, int]
    routes: tuple[int, ...] = ()
    process: "subprocess.Popen[bytes] | None" = field(default=None, init=False)

    @property
    def url(self) -> str:
        return f"nats://{HOST}:{self.ports[0]}"

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def launch(self) -> None:
        """Begin to start it, at the ports and with the store that it had."""
        self.folder.mkdir(parents=True, exist_ok=True)
        config = self.folder / "nats.conf"
        config.write_text(self._config())
        with (self.folder / "nats.log").open("ab") as log:
            command = [str(find_nats_server()), "-c", str(config)]
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=log)

    def wait_ready(self) -> None:
        """Until JetStream works."""
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not self._is_healthy():
            assert time.monotonic() < deadline, (self.folder / "nats.log").read_text()[-2000:]
            time.sleep(POLL_S)

    def start(self) -> None:
        self.launch()
        self.wait_ready()

    def send(self, number: signal.Signals) -> None:
        if self.process is not None:
            self.process.send_signal(number)

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Until it is gone."""
        self.send(number)
        if self.process is not None:
            self.process.wait(20)

    def monitor(self, path: str) -> dict[str, Any]:
        """What its monitoring says, e.g. `connz?subs=1`."""
        with urllib.request.urlopen(f"http://{HOST}:{self.ports[1]}/{path}", timeout=5) as answer:
            return json.loads(answer.read())

    def subscriptions(self) -> list[tuple[str, list[str]]]:
        """The name of every client, and the subjects that it listens to."""
        connections = self.monitor("connz?subs=1&limit=10000")["connections"]
        return [(c.get("name", ""), c.get("subscriptions_list") or []) for c in connections]

    def _is_healthy(self) -> bool:
        try:
            return self.monitor("healthz?js-enabled-only=true")["status"] == "ok"
        except OSError:
            assert self.is_running, (self.folder / "nats.log").read_text()[-2000:]
            return False

    def _config(self) -> str:
        routes = ", ".join(f'"nats://{HOST}:{port}"' for port in self.routes)
        cluster = _CLUSTER.format(host=HOST, port=self.ports[2], routes=routes)
        return _CONFIG.format(
            name=self.name,
            host=HOST,
            port=self.ports[0],
            http_port=self.ports[1],
            token=TOKEN,
            store=json.dumps(str(self.folder / "store")),
            cluster=cluster if routes else "",
        )


class NatsNodes:
    """One node, or a cluster of three."""

    def __init__(self, folder: Path, n: int) -> None:
        ports = free_ports(3 * n)
        routes = tuple(ports[2::3]) if n > 1 else ()
        self.nodes = [
            NatsNode(f"n{i}", folder / f"n{i}", tuple(ports[3 * i : 3 * i + 3]), routes)  # type: ignore[arg-type]
            for i in range(n)
        ]

    def start(self) -> None:
        for node in self.nodes:
            node.launch()
        for node in self.nodes:
            node.wait_ready()

    def stop(self) -> None:
        for node in self.nodes:
            if node.is_running:
                node.send(signal.SIGCONT)
                node.kill()

    def settings(self, **changes: Any) -> BusSettings:
        url = ",".join(node.url for node in self.nodes)
        n_replicas = 3 if len(self.nodes) > 1 else 1
        return BusSettings(url=url, token=TOKEN, n_replicas=n_replicas, **changes)

    def node(self, name: str) -> NatsNode:
        return next(node for node in self.nodes if node.name == name)


@contextmanager
def nats_nodes(folder: Path, n: int = 1):
    """Running servers; they are gone at the end."""
    nodes = NatsNodes(folder, n)
    try:
        nodes.start()
        yield nodes
    finally:
        nodes.stop()
