"""CPU time that each of our processes spends per generated token, with several streams at once.

    .venv/bin/python bench/cpu_per_token.py --model tests/models/stories-tiny.gguf --streams 8

Starts the platform itself on a free port with a fresh data directory, warms it up, then reads the
processor time of every process of ours before and after. The decoder's own time is mostly
llama.cpp's; what the platform adds is everything else.
"""

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
SERVICES = ("nats-server", "api", "engine", "decoder", "serve")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def descendants(pid: int) -> list[int]:
    """The process and all its children, by /proc."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found = [pid]
    for one in found:
        found += children.get(one, [])
    return found


def service_of(pid: int) -> str:
    words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    return next((name for name in SERVICES if any(w.endswith(name) for w in words)), "other")


def cpu_seconds(pids: list[int]) -> dict[str, float]:
    """Processor seconds (user and system) so far, by service."""
    total: dict[str, float] = {}
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        seconds = (int(fields[11]) + int(fields[12])) / TICKS_PER_S
        name = service_of(pid)
        total[name] = total.get(name, 0.0) + seconds
    return total


def resident_mb(pids: list[int]) -> dict[str, float]:
    total: dict[str, float] = {}
    for pid in pids:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        name = service_of(pid)
        total[name] = total.get(name, 0.0) + pages * os.sysconf("SC_PAGE_SIZE") / 1e6
    return total


def stream(url: str, n_tokens: int, seen: list[int]) -> None:
    """Read one streamed completion and count its tokens."""
    body = {"prompt": "Once upon a time", "n_predict": n_tokens, "stream": True, "ignore_eos": True}
    request = urllib.request.Request(f"{url}/completion", json.dumps(body).encode())
    with urllib.request.urlopen(request) as response:
        for line in response:
            if line.startswith(b"data: ") and b'"stop":true' in line:
                seen.append(json.loads(line[6:])["tokens_predicted"])


def run_round(url: str, n_streams: int, n_tokens: int) -> int:
    seen: list[int] = []
    threads = [
        threading.Thread(target=stream, args=(url, n_tokens, seen)) for _ in range(n_streams)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(seen)


def wait_healthy(url: str, process: "subprocess.Popen[bytes]") -> float:
    started_at = time.monotonic()
    while process.poll() is None and time.monotonic() - started_at < 120:
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=1):
                return time.monotonic() - started_at
        except OSError:
            time.sleep(0.02)
    sys.exit("the platform did not start")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--model", default="tests/models/stories-tiny.gguf")
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "services.cli", "serve", "-m", options.model]
        command += ["--port", str(port), "-np", str(options.streams), "--data-dir", folder]
        command += ["-c", str(512 * options.streams), "-t", "1"]
        with open(Path(folder) / "bench.log", "wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            print(f"start to health: {wait_healthy(url, process):.2f} s")
            measure(url, process.pid, options)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(20)


def measure(url: str, pid: int, options: argparse.Namespace) -> None:
    run_round(url, options.streams, options.tokens)
    pids = descendants(pid)
    for name, megabytes in sorted(resident_mb(pids).items()):
        print(f"resident {name:12} {megabytes:7.0f} MB")
    before, started_at, n_tokens = cpu_seconds(pids), time.monotonic(), 0
    for _ in range(options.rounds):
        n_tokens += run_round(url, options.streams, options.tokens)
    elapsed_s = time.monotonic() - started_at
    after = cpu_seconds(pids)
    print(f"{n_tokens} tokens in {elapsed_s:.1f} s: {n_tokens / elapsed_s:.0f} tokens/s")
    per_token = {name: (after[name] - before[name]) / n_tokens * 1e6 for name in after}
    for name, microseconds in sorted(per_token.items()):
        print(f"{name:12} {microseconds:7.1f} µs per token")
    ours = sum(value for name, value in per_token.items() if name != "decoder")
    print(f"{'without decoder':12} {ours:.1f} µs per token")


if __name__ == "__main__":
    main()
