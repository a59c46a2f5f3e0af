"""Looking at model files: identity, digest, header. Everything here blocks: call it in a thread."""

import contextlib
import hashlib
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass

from services.gguf import Array, Header, NotGguf, read_header

CHUNK_BYTES = 4 << 20
LOWEST_PRIORITY = 19
KEPT_TEXT_CHARS = 200


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
    """The GGUF header as `plain` gives it, empty for a file that has none. Raises OSError."""
    with open(path, "rb") as file, contextlib.suppress(NotGguf):
        return plain(read_header(file))
    return {}


def plain(header: Header) -> dict[str, object]:
    """Numbers and flags as they are, long text cut, arrays as `{"n": length}`; adds `gguf.version` and
    `gguf.n_tensors`."""
    found: dict[str, object] = {"gguf.version": header.version, "gguf.n_tensors": header.n_tensors}
    for key, value in header.metadata.items():
        if isinstance(value, Array):
            found[key] = {"n": value.n}
        else:
            found[key] = value[:KEPT_TEXT_CHARS] if isinstance(value, str) else value
    return found


def yield_to_others() -> None:
    """Give the calling thread the lowest priority, for good: decoding threads spin and suffer most."""
    # On Linux a priority belongs to a thread; elsewhere this would slow the whole process down.
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LOWEST_PRIORITY)
