"""Cold start of `llamatape serve` beside the time that its model takes to load (budget: 3 s)."""

import argparse

from bench import report
from bench.processes import platform

N_ROUNDS = 5
BUDGET_S = 3


def run(options: argparse.Namespace) -> None:
    kinds = {"simulated, nothing to load": ["--simulate", "tokens_per_s=50"]}
    if options.model:
        kinds["model file"] = ["-m", options.model, "-t", str(options.threads)]
    with report.measuring("start") as figures:
        rows: list[list[object]] = []
        for name, flags in kinds.items():
            seen = [_start_s(flags) for _ in range(options.rounds or N_ROUNDS)]
            rows.append([name, min(seen) * 1000, report.median(seen) * 1000, max(seen) * 1000])
        report.table(["start to healthy", "min ms", "median ms", "max ms"], rows)
        figures |= {"budget_s": BUDGET_S, "rows": rows}


def _start_s(flags: list[str]) -> float:
    with platform(*flags) as server:
        return server.start_s
