"""Facts, events and findings as JSON. Pure."""

from collections.abc import Iterable
from typing import cast

import orjson

from schemas import codec
from services.bus.log import Entry
from services.streams.audit.verification import Columns, Finding
from services.streams.audit.verifier import Progress, Step

DETAILS = frozenset({"params", "attempts"})
"""Facts that a list leaves out."""


def listed(facts: Columns) -> dict[str, object]:
    """One generation in a list."""
    return {name: value for name, value in facts.items() if name not in DETAILS}


def shown(facts: Columns) -> dict[str, object]:
    """One generation alone."""
    return {"object": "audit.generation", **facts}


def line(value: object) -> bytes:
    """One line of JSON."""
    return orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE)


def event_lines(entries: Iterable[Entry]) -> Iterable[bytes]:
    """A line per entry: its sequence and its events. Bytes that are text are shown as such."""
    for entry in entries:
        events = [_readable(codec.to_builtins(event)) for event in entry.events]
        yield line({"seq": entry.seq, "events": events})


def step_line(step: Step) -> bytes:
    """A line of a verification."""
    if isinstance(step, Finding):
        return line({"object": "audit.finding", **step._asdict()})
    if isinstance(step, Progress):
        return line({"object": "audit.progress", "n_links": step.n_links})
    return line(
        {
            "object": "audit.verdict",
            "is_intact": step.is_intact,
            "n_links": step.n_links,
            "n_findings": step.n_findings,
            "head": None if step.head is None else str(step.head),
        }
    )


def _readable(value: object) -> object:
    if isinstance(value, bytes):
        return _text(value)
    if isinstance(value, dict):
        found = cast("dict[object, object]", value)
        return {str(key): _readable(each) for key, each in found.items()}
    if isinstance(value, list | tuple):
        return [_readable(each) for each in cast("list[object]", value)]
    return value if not isinstance(value, str) else _valid(value)


def _valid(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _text(data: bytes) -> object:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"hex": data.hex()}
