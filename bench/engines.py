"""Growth with engines: 1, 2 and 4 simulated ones behind one gateway, as many streams as slots."""

import argparse

from bench import generator, report
from bench.processes import platform

N_ENGINES = (1, 2, 4)
N_SLOTS, N_TOKENS, RATE = 16, 500, 60


def run(options: argparse.Namespace) -> None:
    n_tokens = options.tokens or N_TOKENS
    with report.measuring("engines") as figures:
        rows: list[list[object]] = []
        for n_engines in N_ENGINES:
            flags = ["--simulate", f"tokens_per_s={RATE}", "--engines", str(n_engines)]
            flags += ["-np", str(N_SLOTS), "-c", str(1024 * N_SLOTS)]
            with platform(*flags) as server:
                n_streams = N_SLOTS * n_engines
                generator.run(generator.completions(server.url, n_streams, 20))
                outcome = generator.run(generator.completions(server.url, n_streams, n_tokens))
            speed = outcome.n_tokens / outcome.elapsed_s
            rows.append([n_engines, n_streams, float(n_streams * RATE), speed, outcome.n_failed])
        first = float(str(rows[0][3]))
        for row in rows:
            row.append(float(str(row[3])) / first)
        head = ["engines", "streams", "offered tokens/s", "tokens/s", "failed", "× one engine"]
        report.table(head, rows)
        figures["rows"] = rows
