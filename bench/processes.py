"""Processes under measurement: starting them, what processor time and memory they took. Linux."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
SERVICES = ("nats-server", "api", "engine", "decoder", "serve", "gateway", "llama-server")
START_TIMEOUT_S = 120


@dataclass(frozen=True, kw_only=True)
class Server:
    """A running server. pid: of the process that started all others. start_s: until it was healthy."""

    url: str
    pid: int
    start_s: float
    folder: Path

    def pids(self) -> list[int]:
        """The process and all its descendants."""
        children: dict[int, list[int]] = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
                    children.setdefault(parent, []).append(int(entry.name))
        found = [self.pid]
        for one in found:
            found += children.get(one, [])
        return found

    def cpu_s(self) -> dict[str, float]:
        """Processor seconds (user and system) so far, by service."""
        total: dict[str, float] = {}
        for pid in self.pids():
            with contextlib.suppress(OSError):
                fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
                seconds = (int(fields[11]) + int(fields[12])) / TICKS_PER_S
                name = _service_of(pid)
                total[name] = total.get(name, 0.0) + seconds
        return total

    def resident_mb(self) -> dict[str, float]:
        total: dict[str, float] = {}
        for pid in self.pids():
            with contextlib.suppress(OSError):
                pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
                name = _service_of(pid)
                total[name] = total.get(name, 0.0) + pages * os.sysconf("SC_PAGE_SIZE") / 1e6
        return total


def _environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parent.parent)}


def _service_of(pid: int) -> str:
    words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    names = [Path(word).name for word in words]
    return next((name for name in SERVICES if name in names), "other")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def platform(*flags: str) -> Generator[Server]:
    """`llamatape serve` on a free port with a fresh data directory."""
    with tempfile.TemporaryDirectory(prefix="llamatape-bench-") as name:
        folder, port = Path(name), free_port()
        command = [sys.executable, "-P", "-m", "services.cli", "serve", *flags]
        command += ["--port", str(port), "--data-dir", str(folder / "data")]
        with _running(command, port, folder, _environment()) as server:
            yield server


@contextlib.contextmanager
def streams(broker_url: str, broker_token: str) -> Generator[Server]:
    """The read side alone, on a broker that is there."""
    with tempfile.TemporaryDirectory(prefix="llamatape-bench-") as name:
        port = free_port()
        command = [sys.executable, "-P", "-m", "services.cli", "streams", "--port", str(port)]
        environment = _environment()
        environment |= {"LLAMATAPE_NATS_URL": broker_url, "LLAMATAPE_NATS_TOKEN": broker_token}
        with _running(command, port, Path(name), environment) as server:
            yield server


@contextlib.contextmanager
def llama_server(binary: Path, *flags: str) -> Generator[Server]:
    """A real llama-server on a free port."""
    with tempfile.TemporaryDirectory(prefix="llamatape-bench-") as name:
        port = free_port()
        command = [str(binary), *flags, "--port", str(port)]
        with _running(command, port, Path(name), dict(os.environ)) as server:
            yield server


@contextlib.contextmanager
def _running(
    command: Sequence[str], port: int, folder: Path, environment: dict[str, str]
) -> Generator[Server]:
    url, begun_at = f"http://127.0.0.1:{port}", time.monotonic()
    with open(folder / "bench.log", "wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
    try:
        _wait_healthy(url, process, folder / "bench.log")
        start_s = time.monotonic() - begun_at
        yield Server(url=url, pid=process.pid, start_s=start_s, folder=folder)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)


def _wait_healthy(url: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/health", timeout=1):
            return
        time.sleep(0.01)
    sys.exit(f"the server did not start:\n{log.read_text()[-2000:]}")
