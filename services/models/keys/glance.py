"""A first look at a database file, before it is opened in earnest, which takes a second."""

import contextlib
import sqlite3
from pathlib import Path
from urllib.parse import quote

SQLITE = "sqlite"
TIMEOUT_S = 2.0
HAS_TABLE = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'api_keys'"
HAS_KEYS = "SELECT 1 FROM api_keys LIMIT 1"


def has_keys(database_url: str) -> bool:
    """Whether there has ever been a key in that SQLite file. Blocking, about a millisecond.

    False for a file that is not there yet, and for other databases, which are not asked; True for
    one that cannot be read: then nobody shall be let in by mistake.
    """
    scheme, _, path = database_url.partition(":///")
    if not scheme.startswith(SQLITE) or not Path(path).is_file():
        return False
    try:
        address = f"file:{quote(path)}?mode=rw"
        with contextlib.closing(sqlite3.connect(address, TIMEOUT_S, uri=True)) as connection:
            if connection.execute(HAS_TABLE).fetchone() is None:
                return False
            return connection.execute(HAS_KEYS).fetchone() is not None
    except sqlite3.Error:
        return True
