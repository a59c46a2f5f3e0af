"""What was downloaded, on its way into the database: one JSON line each in a file of the data directory.

Who downloads appends; the models service reads them into the database and removes them. A line that
is read twice is one row, because it has an id.
"""

import fcntl
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import cast

DOWNLOADED, FAILED = "downloaded", "failed"


@dataclass(frozen=True, kw_only=True)
class Receipt:
    """One download. Times are Unix milliseconds.

    repo, revision, file: of a hub, empty for a plain address. url: without its secrets. path: where
    the file went. size_bytes: fetched and checked. etag: the server's. digest: sha256 in hex.
    outcome: downloaded or failed. error: for people.
    """

    id: str
    repo: str = ""
    revision: str = ""
    file: str = ""
    url: str
    path: str
    size_bytes: int = 0
    etag: str = ""
    digest: str = ""
    started_at_ms: int
    ended_at_ms: int
    outcome: str
    error: str = ""


def append(path: Path, receipts: Sequence[Receipt]) -> None:
    """Raises OSError."""
    if not receipts:
        return
    lines = "".join(json.dumps(asdict(receipt)) + "\n" for receipt in receipts)
    with path.open("a", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(lines)
        file.flush()
        os.fsync(file.fileno())


def pending(path: Path) -> tuple[Receipt, ...]:
    """All that were appended and not yet removed; what cannot be read is left out. Raises OSError."""
    if not path.exists():
        return ()
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    return tuple(receipt for line in lines if (receipt := _receipt(line)))


def remove(path: Path, receipts: Sequence[Receipt]) -> None:
    """Those are in the database; later ones stay. Raises OSError."""
    done = {receipt.id for receipt in receipts}
    with path.open("r+", encoding="utf-8", errors="replace") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        lines = [line for line in file if (found := _receipt(line)) and found.id not in done]
        file.seek(0)
        file.truncate()
        file.writelines(lines)


def _receipt(line: str) -> Receipt | None:
    try:
        found: object = json.loads(line)
        values = cast("dict[str, object]", found) if isinstance(found, dict) else {}
        names = {field.name for field in fields(Receipt)}
        return Receipt(**{name: value for name, value in values.items() if name in names})  # pyright: ignore[reportArgumentType]
    except (ValueError, TypeError):
        return None
