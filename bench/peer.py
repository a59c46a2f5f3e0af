"""Side by side with a real llama-server: same model, threads and slots, rounds in turn, medians.

Budgets: tokens/s ≥ 0.97 ×, first token ≤ +5 ms (p50), gap p99 ≤ 1.1 ×.
"""

import argparse
import sys
from pathlib import Path

from bench import generator, report
from bench.build import llama_server_binary
from bench.load import Outcome
from bench.processes import Server, llama_server, platform

STREAMS = (1, 4, 8)
N_TOKENS, N_ROUNDS, N_CTX_SLOT = 100, 7, 512
N_WARM_UPS, N_WARM_UP_TOKENS = 2, 8
Rounds = dict[str, list[Outcome]]


def run(options: argparse.Namespace) -> None:
    model = options.model or sys.exit("peer: name a model with --model")
    binary = Path(options.llama_server) if options.llama_server else llama_server_binary()
    streams = (options.streams,) if options.streams else STREAMS
    with report.measuring("peer") as figures:
        rows: list[list[object]] = []
        for n_streams in streams:
            flags = ["-m", model, "-t", str(options.threads), "-np", str(n_streams)]
            flags += ["-c", str(N_CTX_SLOT * n_streams)]
            with platform(*flags) as ours, llama_server(binary, *flags) as theirs:
                rounds = _rounds({"ours": ours, "theirs": theirs}, n_streams, options)
            rows += _rows(n_streams, rounds)
        head = ["streams", "server", "tokens/s", "first token ms", "gap p50 ms", "gap p99 ms"]
        report.table([*head, "failed"], rows)
        figures |= {"threads": options.threads, "model": Path(model).name, "rows": rows}


def _rounds(servers: dict[str, Server], n_streams: int, options: argparse.Namespace) -> Rounds:
    """Outcomes by server; each round asks one after the other, in changing order."""
    n_tokens = options.tokens or N_TOKENS
    for server in servers.values():
        generator.run(generator.completions(server.url, n_streams, 20))
    rounds: Rounds = {name: [] for name in servers}
    for number in range(options.rounds or N_ROUNDS):
        order = list(servers.items())[:: 1 if number % 2 else -1]
        for name, server in order:
            _warm_up(server, n_streams)
            job = generator.completions(
                server.url, n_streams, n_tokens, seed=number, cache_prompt=False
            )
            rounds[name].append(generator.run(job))
    return rounds


def _warm_up(server: Server, n_streams: int) -> None:
    """Not measured: while the other one was asked, the machine forgot what this one needs (some take
    the memory of idle processes away: both then need ten times as long for the first token)."""
    for _ in range(N_WARM_UPS):
        generator.run(generator.completions(server.url, n_streams, N_WARM_UP_TOKENS))


def _rows(n_streams: int, rounds: Rounds) -> list[list[object]]:
    rows: list[list[object]] = []
    for name, outcomes in rounds.items():
        figures = [
            report.median([o.n_tokens / o.elapsed_s for o in outcomes]),
            report.median([report.median(o.ttfts) * 1000 for o in outcomes]),
            report.median([report.percentile(o.gaps, 50) * 1000 for o in outcomes]),
            report.median([report.percentile(o.gaps, 99) * 1000 for o in outcomes]),
        ]
        rows.append([n_streams, name, *figures, sum(o.n_failed for o in outcomes)])
    ours, theirs = ([float(str(cell)) for cell in row[2:6]] for row in rows)
    ratios = [f"{a / b:.3f} ×" if b else "" for a, b in zip(ours, theirs, strict=True)]
    ratios[1] = f"{ours[1] - theirs[1]:+.1f}"
    rows.append([n_streams, "ours to theirs", *ratios, ""])
    return rows
