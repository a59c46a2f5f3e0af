"""A file that is being downloaded: `<path>.downloadInProgress`, locked, hashed while it grows."""

import contextlib
import fcntl
import hashlib
import logging
import os
import shutil
from collections.abc import Generator
from pathlib import Path
from typing import BinaryIO

from services.logs import event
from services.models.errors import DownloadFailed

log = logging.getLogger(__name__)

SUFFIX = ".downloadInProgress"
ETAG_SUFFIX = ".etag"
CHUNK_BYTES = 1 << 20
MEBI = 1 << 20


class Part:
    """The beginning of a file. size_bytes: what is there. etag: of what it is the beginning.

    Every method raises DownloadFailed where the disk fails.
    """

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._path, self._file = path, file
        self._etag_path = _beside(_beside(path, SUFFIX), ETAG_SUFFIX)
        self._digest = hashlib.sha256()
        self._is_finished = False
        self.size_bytes = 0
        self.etag = read_etag(_beside(path, SUFFIX))
        self._recall()

    @property
    def sha256(self) -> str:
        """Of what is there, in hex."""
        return self._digest.hexdigest()

    def begin(self, etag: str) -> None:
        """Drop what is there; the beginning of `etag` comes."""
        with _disk(self._path):
            self._file.truncate(0)
            self._etag_path.unlink(missing_ok=True)
            if etag:
                self._etag_path.write_text(etag)
        self._digest, self.size_bytes, self.etag = hashlib.sha256(), 0, etag

    def write(self, data: bytes) -> None:
        with _disk(self._path):
            self._file.write(data)
        self._digest.update(data)
        self.size_bytes += len(data)

    def need(self, n_bytes: int) -> None:
        """Raise DownloadFailed where the disk has no room for so many more."""
        free = shutil.disk_usage(self._path.parent).free
        if n_bytes > free:
            raise DownloadFailed(
                f"no room for {self._path.name} in {self._path.parent}: "
                f"{n_bytes // MEBI} MiB are needed, {free // MEBI} MiB are free"
            )

    def finish(self) -> None:
        """Make it the whole file, on the disk for good."""
        with _disk(self._path):
            self._file.flush()
            os.fsync(self._file.fileno())
            _beside(self._path, SUFFIX).replace(self._path)
            self._is_finished = True
            self._etag_path.unlink(missing_ok=True)

    def drop_if_empty(self) -> None:
        """Leave nothing behind where nothing came; while the lock is held, or others lose theirs."""
        if self.size_bytes == 0 and not self._is_finished:
            with contextlib.suppress(OSError):
                _beside(self._path, SUFFIX).unlink(missing_ok=True)
                self._etag_path.unlink(missing_ok=True)

    def _recall(self) -> None:
        with _disk(self._path):
            self._file.seek(0)
            while chunk := self._file.read(CHUNK_BYTES):
                self._digest.update(chunk)
                self.size_bytes += len(chunk)


@contextlib.contextmanager
def part_of(path: Path) -> Generator[Part]:
    """The part of `path`, ours alone; waits for whoever else downloads it. Raises DownloadFailed."""
    with _disk(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = locked(_beside(path, SUFFIX))
    with file:
        part = Part(path, file)
        try:
            yield part
        finally:
            part.drop_if_empty()


def locked(path: Path) -> BinaryIO:
    """Open and lock; again where the one who held the lock has renamed the file meanwhile."""
    while True:
        file = path.open("a+b")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            event(log, "download_waits", path=str(path), reason="another process downloads it")
            fcntl.flock(file, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
                return file
        file.close()


@contextlib.contextmanager
def _disk(path: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise DownloadFailed(f"cannot write {path}: {error.strerror}") from error


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def read_etag(path: Path) -> str:
    """What was noted of the file at `path`; empty for nothing."""
    try:
        return _beside(path, ETAG_SUFFIX).read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def write_etag(path: Path, etag: str) -> None:
    """Raises DownloadFailed."""
    with _disk(path):
        _beside(path, ETAG_SUFFIX).write_text(etag)
