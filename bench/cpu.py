"""CPU of all our processes per token: 8 streams of a simulated decoder (budget: 100 µs)."""

import argparse
import time

from bench import generator, report
from bench.processes import Server, platform

N_STREAMS, N_TOKENS, N_ROUNDS = 8, 500, 3
BUDGET_US = 100


def run(options: argparse.Namespace) -> None:
    n_streams = options.streams or N_STREAMS
    flags = ["--simulate", f"tokens_per_s={options.rate}", "-np", str(n_streams)]
    with (
        report.measuring("cpu") as figures,
        platform(*flags, "-c", str(1024 * n_streams)) as server,
    ):
        _round(server, n_streams, 50)
        rounds = [
            _round(server, n_streams, options.tokens or N_TOKENS)
            for _ in range(options.rounds or N_ROUNDS)
        ]
        names = sorted({name for one in rounds for name in one})
        medians = {name: report.median([one[name] for one in rounds]) for name in names}
        rows = [[name, *(one[name] for one in rounds), medians[name]] for name in names]
        heads = [f"round {n + 1}" for n in range(len(rounds))]
        report.table(["µs of CPU per token", *heads, "median"], rows)
        memory = server.resident_mb()
        report.table(["resident", "MB"], sorted(memory.items()))
        figures |= {"streams": n_streams, "rate": options.rate, "us_per_token": medians}
        figures |= {"budget_us": BUDGET_US, "resident_mb": memory}


def _round(server: Server, n_streams: int, n_tokens: int) -> dict[str, float]:
    """Microseconds per token by service, and of all."""
    before, begun_at = server.cpu_s(), time.monotonic()
    outcome = generator.run(generator.completions(server.url, n_streams, n_tokens))
    after, elapsed_s = server.cpu_s(), time.monotonic() - begun_at
    spent = {name: (after[name] - before.get(name, 0.0)) / outcome.n_tokens * 1e6 for name in after}
    spent["all"] = sum(spent.values())
    spent["(generator)"] = outcome.cpu_s / outcome.n_tokens * 1e6
    spent["(tokens/s)"] = outcome.n_tokens / elapsed_s
    return spent
