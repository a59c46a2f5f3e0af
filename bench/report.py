"""How results are told: a table for people, one JSON line for programs, the machine's load for honesty."""

import json
import os
import statistics
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any


@contextmanager
def measuring(name: str) -> Generator[dict[str, Any]]:
    """Collects the figures of one bench and tells them at the end."""
    figures: dict[str, Any] = {"bench": name, "load_before": load(), "reference_ms": reference_ms()}
    print(f"\n== {name}")
    yield figures
    figures["load_after"] = load()
    before, after = figures["load_before"], figures["load_after"]
    print(f"load {before:.2f} before, {after:.2f} after;", end=" ")
    print(f"the reference work took {figures['reference_ms']:.1f} ms of CPU")
    print(json.dumps(figures))


def load() -> float:
    """Processes that ran or waited, averaged over the last minute."""
    return round(os.getloadavg()[0], 2)


def reference_ms() -> float:
    """CPU time of some fixed work: how fast this machine is while others use it, too."""
    spent: list[float] = []
    for _ in range(5):
        begun_at = time.process_time()
        sum(len({str(n): n}) for n in range(100_000))
        spent.append((time.process_time() - begun_at) * 1000)
    return round(statistics.median(spent), 1)


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """A Markdown table with aligned columns."""
    texts = [[_text(cell) for cell in row] for row in [head, *rows]]
    widths = [max(len(row[i]) for row in texts) for i in range(len(head))]
    for number, row in enumerate(texts):
        cells = (
            cell.ljust(width) if not i else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        print(f"| {' | '.join(cells)} |")
        if not number:
            print("|" + "|".join("-" * (width + 2) for width in widths) + "|")


def _text(cell: object) -> str:
    return f"{cell:,.1f}" if isinstance(cell, float) else str(cell)


def percentile(values: Sequence[float], percent: float) -> float:
    """0 for no values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))] if ordered else 0.0


def median(values: Sequence[float]) -> float:
    return statistics.median(values) if values else 0.0
