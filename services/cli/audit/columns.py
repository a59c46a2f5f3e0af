"""Facts as columns and as lines, for people. Pure."""

import datetime
from collections.abc import Callable, Iterable, Mapping, Sequence

Facts = Mapping[str, object]
MAX_WIDTH = 36
_GAP = "  "


def moment(value: object) -> str:
    """Unix milliseconds as a time of day in UTC, to the second."""
    if not isinstance(value, int):
        return "-"
    return f"{datetime.datetime.fromtimestamp(value / 1000, datetime.UTC):%Y-%m-%d %H:%M:%S}"


def text(value: object) -> str:
    """One line, nothing that moves a terminal's cursor."""
    shown = "-" if value in (None, "") else str(value)
    return "".join(each if each.isprintable() else "?" for each in shown)


LIST: tuple[tuple[str, str, Callable[[object], str]], ...] = (
    ("CREATED (UTC)", "created_at_ms", moment),
    ("GENERATION", "generation_id", text),
    ("CALLER", "caller", text),
    ("MODEL", "model", text),
    ("DIALECT", "dialect", text),
    ("OUTCOME", "outcome", text),
    ("PROMPT", "n_prompt", text),
    ("ANSWER", "n_predicted", text),
    ("CONTENT", "content", text),
)


def listing(rows: Iterable[Facts]) -> list[str]:
    """A line per generation, below a head."""
    head = [title for title, _, _ in LIST]
    cells = [[_short(show(row.get(key))) for _, key, show in LIST] for row in rows]
    return aligned([head, *cells])


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Cells in columns as wide as their widest one."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        _GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def details(facts: Facts) -> list[str]:
    """A line per fact; times of the day beside their milliseconds."""
    rows: list[list[str]] = []
    for key, value in facts.items():
        shown = text(value)
        if key.endswith("_at_ms") and isinstance(value, int):
            shown = f"{value} ({moment(value)} UTC)"
        rows.append([key, shown])
    return aligned(rows)


def _short(cell: str) -> str:
    return cell if len(cell) <= MAX_WIDTH else f"{cell[: MAX_WIDTH - 1]}…"
