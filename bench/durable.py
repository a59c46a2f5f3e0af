"""What it costs to have every entry on the disk before it counts (`--durable`): tokens/s, first token,
gaps, at paces of a CPU and beyond. The same load with and without, in turn."""

import argparse

from bench import generator, report
from bench.load import Outcome
from bench.processes import platform

LOADS = ((1, 25), (8, 15), (8, 100), (64, 50))
"""Streams, and tokens/s of each: what a CPU gives one, what it gives eight, a GPU, a large one."""
N_SECONDS, N_ROUNDS = 8, 2


def run(options: argparse.Namespace) -> None:
    with report.measuring("durable") as figures:
        rows = [row for streams, rate in LOADS for row in _pair(streams, rate, options)]
        head = ["streams", "tokens/s each", "--durable", "delivered tokens/s", "first token p50 ms"]
        report.table([*head, "gap p50 ms", "gap p99 ms"], rows)
        figures["rows"] = rows


def _pair(n_streams: int, rate: int, options: argparse.Namespace) -> list[list[object]]:
    rows: list[list[object]] = []
    for flag in ("no", "yes"):
        flags = ["--simulate", f"tokens_per_s={rate}", "-np", str(n_streams)]
        flags += ["-c", str(4096 * n_streams), *(["--durable"] if flag == "yes" else [])]
        with platform(*flags) as server:
            n_tokens = options.tokens or rate * N_SECONDS
            generator.run(generator.completions(server.url, n_streams, 10))
            job = generator.completions(server.url, n_streams, n_tokens)
            rounds = [generator.run(job) for _ in range(options.rounds or N_ROUNDS)]
        rows.append([n_streams, rate, flag, *_figures(max(rounds, key=_speed))])
    return rows


def _speed(outcome: Outcome) -> float:
    return outcome.n_tokens / outcome.elapsed_s


def _figures(outcome: Outcome) -> list[object]:
    return [
        _speed(outcome),
        report.percentile(outcome.ttfts, 50) * 1000,
        report.percentile(outcome.gaps, 50) * 1000,
        report.percentile(outcome.gaps, 99) * 1000,
    ]
