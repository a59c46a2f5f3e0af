"""Looking at model files: identity, digest, header. Everything here blocks: call it in a thread."""

import contextlib
import hashlib
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass

from services.models.errors import NotGguf
from services.models.gguf import read_header

CHUNK_BYTES = 4 << 20
LOWEST_PRIORITY = 19


@dataclass(frozen=True, kw_only=True)
class FileIdentity:
    """What tells two states of a file apart without reading it. A missing file has size −1."""

    path: str
    size_bytes: int
    mtime_ns: int


@dataclass(frozen=True, kw_only=True)
class FileFacts:
    """What reading a file says. digest: sha256 in hex. header: of the GGUF, empty if it is none."""

    digest: str
    header: dict[str, object]


def identify(path: str) -> FileIdentity:
    """The file's identity; never raises."""
    try:
        status = os.stat(path)
    except OSError:
        return FileIdentity(path=path, size_bytes=-1, mtime_ns=0)
    return FileIdentity(path=path, size_bytes=status.st_size, mtime_ns=status.st_mtime_ns)


def inspect(path: str, is_given_up: Callable[[], bool]) -> FileFacts | None:
    """Digest and header; None when given up. Takes seconds for gigabytes. Raises OSError."""
    yield_to_others()
    digest = digest_of(path, is_given_up)
    return None if digest is None else FileFacts(digest=digest, header=header_of(path))


def digest_of(path: str, is_given_up: Callable[[], bool]) -> str | None:
    """sha256 of the file in hex; None when given up. Raises OSError."""
    digest = hashlib.sha256()
    with open(path, "rb", buffering=0) as file:
        while not is_given_up():
            if not (chunk := file.read(CHUNK_BYTES)):
                return digest.hexdigest()
            digest.update(chunk)
    return None


def header_of(path: str) -> dict[str, object]:
    """The GGUF header, empty for a file that has none. Raises OSError."""
    with open(path, "rb") as file, contextlib.suppress(NotGguf):
        return read_header(file)
    return {}


def yield_to_others() -> None:
    """Give the calling thread the lowest priority, for good: decoding threads spin and suffer most."""
    # On Linux a priority belongs to a thread; elsewhere this would slow the whole process down.
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LOWEST_PRIORITY)
