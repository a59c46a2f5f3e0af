"""Tokens/s through one gateway: 256 streams of a simulated decoder (budget: 20,000)."""

import argparse

from bench import generator, report
from bench.processes import Server, platform

N_STREAMS, N_TOKENS, N_ROUNDS = 256, 800, 3
RATES = (40, 80, 160)
BUDGET = 20_000


def run(options: argparse.Namespace) -> None:
    n_streams = options.streams or N_STREAMS
    with report.measuring("gateway") as figures:
        rows: list[list[object]] = []
        for rate in RATES:
            flags = ["--simulate", f"tokens_per_s={rate}", "-np", str(n_streams)]
            with platform(*flags, "-c", str(2048 * n_streams)) as server:
                rows.append(_rate(server, n_streams, rate, options))
        head = ["offered tokens/s", "delivered tokens/s", "tokens per chunk", "complete"]
        report.table([*head, "gap p50 ms", "gap p99 ms", "CPU µs/token"], rows)
        best = max(float(str(row[1])) for row in rows)
        figures |= {"streams": n_streams, "budget": BUDGET, "best_tokens_per_s": round(best)}
        figures["rows"] = rows


def _rate(server: Server, n_streams: int, rate: float, options: argparse.Namespace) -> list[object]:
    """The median round at one rate."""
    n_tokens = options.tokens or N_TOKENS
    generator.run(generator.completions(server.url, n_streams, 20))
    rounds: list[list[object]] = []
    for _ in range(options.rounds or N_ROUNDS):
        before = sum(server.cpu_s().values())
        outcome = generator.run(generator.completions(server.url, n_streams, n_tokens))
        spent_us = (sum(server.cpu_s().values()) - before) / max(1, outcome.n_tokens) * 1e6
        n_chunks = max(1, len(outcome.gaps) + len(outcome.ttfts))
        rounds.append(
            [
                round(n_streams * rate),
                outcome.n_tokens / outcome.elapsed_s,
                outcome.n_tokens / n_chunks,
                f"{outcome.n_complete}/{n_streams}",
                report.percentile(outcome.gaps, 50) * 1000,
                report.percentile(outcome.gaps, 99) * 1000,
                spent_us,
            ]
        )
    return sorted(rounds, key=lambda row: float(str(row[1])))[len(rounds) // 2]
