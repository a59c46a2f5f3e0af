"""What a limit costs: short requests with keys of four kinds in turn, over one connection."""

import argparse
import http.client
import json
import subprocess
import sys
import time
from urllib.parse import urlsplit

from bench import report
from bench.processes import Server, platform

ROUNDS, WARM_UP = 600, 50
FLAG_KEY = "flag"
FLAGS = ("--simulate", "tokens_per_s=10000", "-np", "4", "--api-key", FLAG_KEY)
PLENTY = "1000000"
REQUESTS = ("--requests-per-minute", PLENTY)
ALL = (*REQUESTS, "--tokens-per-minute", "100000000", "--concurrent", "100")
KINDS = {"database, no limit": (), "database, requests": REQUESTS, "database, all limits": ALL}
BODY = json.dumps({"prompt": "x", "n_predict": 1})
KNOWN_S = 10


def run(options: argparse.Namespace) -> None:
    with report.measuring("keys") as figures, platform(*FLAGS) as server:
        keys = {"flag": FLAG_KEY} | {kind: _create(server, *KINDS[kind]) for kind in KINDS}
        found = _ask_in_turn(server.url, keys, options.rounds or ROUNDS)
        rows = [_row(kind, times_ms, found["flag"]) for kind, times_ms in found.items()]
        report.table(["key", "p10 ms", "p50 ms", "p90 ms", "more than a flag's p10", "p50"], rows)
        figures |= {"rows": rows}


def _create(server: Server, *limits: str) -> str:
    line = [sys.executable, "-P", "-m", "services.cli", "keys", "create", "bench", *limits]
    line += ["--data-dir", str(server.folder / "data")]
    return subprocess.run(line, check=True, capture_output=True, text=True).stdout.strip()


def _ask_in_turn(url: str, keys: dict[str, str], rounds: int) -> dict[str, list[float]]:
    times_ms: dict[str, list[float]] = {kind: [] for kind in keys}
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
    for key in keys.values():
        _wait_known(connection, key)
    for number in range(WARM_UP + rounds):
        for kind, key in keys.items():
            begun_at = time.perf_counter()
            status = _ask(connection, key)
            assert status == 200, f"{kind}: {status}"
            if number >= WARM_UP:
                times_ms[kind].append((time.perf_counter() - begun_at) * 1000)
    connection.close()
    return times_ms


def _ask(connection: http.client.HTTPConnection, key: str) -> int:
    connection.request("POST", "/completion", BODY, {"Authorization": f"Bearer {key}"})
    response = connection.getresponse()
    response.read()
    return response.status


def _wait_known(connection: http.client.HTTPConnection, key: str) -> None:
    deadline = time.monotonic() + KNOWN_S
    while _ask(connection, key) != 200:
        assert time.monotonic() < deadline, "the server never learnt of the key"
        time.sleep(0.05)


def _row(kind: str, times_ms: list[float], flag_ms: list[float]) -> list[object]:
    p10, p50, p90 = (report.percentile(times_ms, percent) for percent in (10, 50, 90))
    more = (p10 - report.percentile(flag_ms, 10), p50 - report.percentile(flag_ms, 50))
    return [kind, *(f"{value:.2f}" for value in (p10, p50, p90, *more))]
