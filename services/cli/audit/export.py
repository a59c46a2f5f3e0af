"""Facts of many generations in a file: JSON lines, or Parquet through pyarrow."""

import argparse
import contextlib
import importlib
import sys
from collections.abc import AsyncIterator, Generator
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from schemas.errors import RequestError
from services.cli.errors import UsageError
from services.streams.audit import lines
from services.streams.audit.service import Audit
from services.streams.audit.verification import Columns

ROWS = 5000
"""In one row group, and in memory."""
INTEGERS = frozenset({"n_attempts", "n_prompt", "n_predicted", "n_cached", "n_entries", "last_seq"})
FLOATS = frozenset({"prompt_ms", "predicted_ms"})
JSON = frozenset({"params", "attempts", "adapter_digests"})
NO_PYARROW = "Parquet needs pyarrow: pip install 'llamatape[parquet]', or take --format jsonl"


async def write(audit: Audit, rows: AsyncIterator[Columns], given: argparse.Namespace) -> int:
    """How many were written. Raises UsageError."""
    if given.format == "parquet":
        if given.events:
            raise UsageError("--events: logs are exported as jsonl only")
        return await _parquet(rows, given.output)
    n = 0
    with _file(given.output) as file:
        async for facts in rows:
            n += 1
            file.write(lines.line(await _with_events(audit, facts) if given.events else facts))
    return n


async def _with_events(audit: Audit, facts: Columns) -> dict[str, object]:
    """events: the log's entries; null where they are not kept."""
    try:
        entries = await audit.entries(str(facts["generation_id"]))
    except RequestError:
        return {**facts, "events": None}
    return {**facts, "events": [orjson.loads(each) for each in lines.event_lines(entries)]}


@contextlib.contextmanager
def _file(path: str) -> Generator[BinaryIO]:
    if path == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    try:
        with Path(path).open("wb") as file:
            yield file
    except OSError as error:
        raise UsageError(f"--output: cannot write {path}: {error.strerror}") from None


async def _parquet(rows: AsyncIterator[Columns], path: str) -> int:
    """Lists and objects are JSON texts, times are timestamps."""
    try:
        arrow: Any = importlib.import_module("pyarrow")
        parquet: Any = importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise UsageError(NO_PYARROW) from None
    from services.streams.audit.store import FACTS

    schema = arrow.schema([(name, _kind(arrow, name)) for name in FACTS])
    n, batch = 0, list[dict[str, object]]()
    with _file(path) as file, parquet.ParquetWriter(file, schema) as writer:
        async for facts in rows:
            n += 1
            batch.append({name: _cell(name, facts[name]) for name in FACTS})
            if len(batch) == ROWS:
                writer.write_table(arrow.Table.from_pylist(batch, schema))
                batch = []
        writer.write_table(arrow.Table.from_pylist(batch, schema))
    return n


def _kind(arrow: Any, name: str) -> Any:
    if name.endswith("_at_ms"):
        return arrow.timestamp("ms", tz="UTC")
    if name in INTEGERS:
        return arrow.int64()
    return arrow.float64() if name in FLOATS else arrow.string()


def _cell(name: str, value: object) -> object:
    return orjson.dumps(value).decode() if name in JSON else value
