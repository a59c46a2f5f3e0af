"""Single header fields out of a NATS header block, without parsing all of it. Pure."""

import re
from functools import lru_cache


def field(headers: bytes, name: str) -> bytes | None:
    """The value of a field (exact name), None if absent."""
    found = _pattern(name).search(headers)
    return found[1] if found else None


def number(headers: bytes, name: str) -> int:
    """The value of a numeric field. Raises KeyError if it is absent or no number."""
    value = field(headers, name)
    if value is None or not value.isdigit():
        raise KeyError(name)
    return int(value)


def status(headers: bytes) -> bytes:
    """The status in the first line, `404` or the like; empty for an ordinary message."""
    return headers[9:12] if headers[8:9] == b" " else b""


@lru_cache(maxsize=64)
def _pattern(name: str) -> "re.Pattern[bytes]":
    return re.compile(rb"\r\n" + re.escape(name.encode()) + rb":[ \t]*([^\r\n]*?)[ \t]*\r\n")
