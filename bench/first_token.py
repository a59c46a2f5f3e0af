"""The first token of single short requests, beside a real llama-server: pairs in turn, one at a time.

Budget: +5 ms in the median of the pairs. The servers' own figure for the prompt (which is the same work) is
told apart from what they need beside it.
"""

import argparse
import re
import socket
import sys
import time
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from bench import report
from bench.build import llama_server_binary
from bench.load import Job, request_bytes
from bench.processes import Server, llama_server, platform

N_PAIRS, N_WARM_UPS = 100, 10
N_SLOTS, N_CTX, N_TOKENS = 8, 8192, 3
_PROMPT_MS = re.compile(rb'"prompt_ms":([0-9.]+)')


class First(NamedTuple):
    """Milliseconds from the request to the first token; prompt_ms: of these, as the server says."""

    token_ms: float
    prompt_ms: float

    @property
    def beside_ms(self) -> float:
        return self.token_ms - self.prompt_ms


def run(options: argparse.Namespace) -> None:
    model = options.model or sys.exit("first_token: name a model with --model")
    binary = Path(options.llama_server) if options.llama_server else llama_server_binary()
    flags = ["-m", model, "-t", str(options.threads), "-np", str(N_SLOTS), "-c", str(N_CTX)]
    with report.measuring("first_token") as figures:
        with platform(*flags) as ours, llama_server(binary, *flags) as theirs:
            pairs = _pairs(ours, theirs, options.rounds or N_PAIRS)
        rows = [_row("ours", [a for a, _ in pairs]), _row("theirs", [b for _, b in pairs])]
        differences = [a.token_ms - b.token_ms for a, b in pairs]
        beside = [a.beside_ms - b.beside_ms for a, b in pairs]
        rows.append(["difference", report.median(differences), "", report.median(beside)])
        report.table(["server", "first token ms", "prompt ms", "beside it ms"], rows)
        figures |= {"threads": options.threads, "model": Path(model).name, "rows": rows}


def _pairs(ours: Server, theirs: Server, n_pairs: int) -> list[tuple[First, First]]:
    """Each asks both, in changing order, so that neither always comes after the other."""
    pairs: list[tuple[First, First]] = []
    for number in range(-N_WARM_UPS, n_pairs):
        if number % 2:
            first = _ask(ours, number)
            pairs.append((first, _ask(theirs, number)))
        else:
            second = _ask(theirs, number)
            pairs.append((_ask(ours, number), second))
    return pairs[N_WARM_UPS:]


def _ask(server: Server, number: int) -> First:
    body = {
        "prompt": f"Story number {number}: once upon a time there was",
        "n_predict": N_TOKENS,
        "stream": True,
        "ignore_eos": True,
        "cache_prompt": False,
    }
    request = request_bytes(Job(url=server.url), 0, body)
    parts = urlsplit(server.url)
    answer, token_at = b"", 0.0
    with socket.create_connection((parts.hostname or "127.0.0.1", parts.port or 80)) as connection:
        sent_at = time.perf_counter()
        connection.sendall(request)
        while data := connection.recv(65536):
            answer += data
            token_at = token_at or (time.perf_counter() if b"data: " in answer else 0.0)
    found = _PROMPT_MS.findall(answer)
    if not found:
        sys.exit(f"first_token: {server.url} answered {answer[-200:]!r}")
    return First((token_at - sent_at) * 1000, float(found[-1]))


def _row(name: str, all_: list[First]) -> list[object]:
    columns = zip(*((each.token_ms, each.prompt_ms, each.beside_ms) for each in all_), strict=True)
    return [name, *(report.median(list(column)) for column in columns)]
