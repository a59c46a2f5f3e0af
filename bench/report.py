"""How results are told: a table for people, one JSON line for programs, the machine's load for honesty."""

import json
import os
import statistics
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any


@contextmanager
def measuring(name: str) -> Generator[dict[str, Any]]:
    """Collects the figures of one bench and tells them at the end."""
    figures: dict[str, Any] = {"bench": name, "load_before": load()}
    print(f"\n== {name} (load {figures['load_before']:.2f})")
    yield figures
    figures["load_after"] = load()
    print(f"load after: {figures['load_after']:.2f}")
    print(json.dumps(figures))


def load() -> float:
    """Processes that ran or waited, averaged over the last minute."""
    return round(os.getloadavg()[0], 2)


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
