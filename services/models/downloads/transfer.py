"""One file from one address: resumed where it broke off, tried again, checked, renamed when whole."""

import logging
import re
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from services.logs import event
from services.models.downloads import web
from services.models.downloads.part import CHUNK_BYTES, Part, part_of, read_etag, write_etag
from services.models.downloads.urls import shown
from services.models.downloads.web import Refused, Response, Trouble
from services.models.errors import DownloadFailed

log = logging.getLogger(__name__)

WAITS_S = (0.5, 2.0, 4.0, 8.0)
"""Before each further try; the count begins anew whenever bytes have come."""
_RANGE = re.compile(r"bytes (?:(\d+)-\d+|\*)/(\d+)")

Progress = Callable[[str, int, int], None]
"""Name, bytes that are there, bytes in all (0 if unknown)."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """path: where it goes. sha256, size_bytes: what it must have, empty and −1 if unknown.

    keeps_etag: the file's ETag is noted beside it, and what is there is fetched again only if the
    server has another one.
    """

    url: str
    path: Path
    token: str = ""
    sha256: str = ""
    size_bytes: int = -1
    keeps_etag: bool = False

    @property
    def name(self) -> str:
        return shown(self.url).rpartition("/")[2]


@dataclass(frozen=True, kw_only=True)
class Transferred:
    """is_new: bytes were fetched, else it was there already. etag: the server's."""

    is_new: bool
    etag: str = ""
    sha256: str = ""
    size_bytes: int = 0


class Unchanged(Exception):
    """The server has what we have."""


class Transfer:
    """Blocks until the file is there. waits_s: between tries. Raises DownloadFailed."""

    def __init__(
        self, wanted: Wanted, on_progress: Progress, waits_s: tuple[float, ...] = WAITS_S
    ) -> None:
        self._wanted, self._on_progress, self._waits_s = wanted, on_progress, waits_s

    def run(self) -> Transferred:
        with part_of(self._wanted.path) as part:
            is_there = self._wanted.path.exists()
            if is_there and not self._wanted.keeps_etag:  # another process was faster
                return Transferred(is_new=False)
            try:
                return self._refresh(part) if is_there else self._insist(part)
            except Unchanged:
                return Transferred(is_new=False)

    def _refresh(self, part: Part) -> Transferred:
        """Fetch anew what has changed; with the server out of reach what is there will do."""
        before = part.size_bytes
        try:
            return self._pull(part, read_etag(self._wanted.path))
        except (Trouble, Refused) as error:
            if part.size_bytes > before:
                return self._insist(part)
            reason = f"cached file is used: {error}"
            event(log, "download_skipped", level=logging.WARNING, reason=reason)
            return Transferred(is_new=False)

    def _insist(self, part: Part) -> Transferred:
        n_failed = 0
        while True:
            before = part.size_bytes
            try:
                return self._pull(part, "")
            except Refused as error:
                raise DownloadFailed(f"{shown(self._wanted.url)}: {error}") from error
            except Trouble as error:
                n_failed = 1 if part.size_bytes > before else n_failed + 1
                self._wait(n_failed, error)

    def _wait(self, n_failed: int, error: Trouble) -> None:
        if n_failed > len(self._waits_s):
            raise DownloadFailed(f"cannot download {self._wanted.name}: {error}") from error
        wait_s = self._waits_s[n_failed - 1]
        event(log, "download_retry", level=logging.WARNING, error=str(error), wait_s=wait_s)
        time.sleep(wait_s)

    def _pull(self, part: Part, known_etag: str) -> Transferred:
        """One try. known_etag: of the whole file that is there already, empty for none."""
        with self._open(part, known_etag) as answer:
            etag, total = self._accept(part, answer, known_etag)
            self._copy(part, answer, total)
        self._check(part, total)
        part.finish()
        if self._wanted.keeps_etag:
            write_etag(self._wanted.path, etag)
        return Transferred(is_new=True, etag=etag, sha256=part.sha256, size_bytes=part.size_bytes)

    @contextmanager
    def _open(self, part: Part, known_etag: str) -> Generator[Response]:
        headers = web.bearer(self._wanted.token)
        if known_etag:
            headers["If-None-Match"] = known_etag
        if part.size_bytes:
            headers["Range"] = f"bytes={part.size_bytes}-"
        if part.size_bytes and part.etag and not part.etag.startswith("W/"):
            headers["If-Range"] = part.etag
        try:
            with web.get(self._wanted.url, headers) as answer:
                yield answer
        except Refused as error:
            raise self._told(part, error) from None

    def _told(self, part: Part, error: Refused) -> Exception:
        if error.status == 304:
            return Unchanged()
        if error.status == 416 and part.size_bytes:  # what is there is not the beginning of it
            part.begin("")
            return Trouble("the server has fewer bytes than were fetched before")
        return error

    def _accept(self, part: Part, answer: Response, known_etag: str) -> tuple[str, int]:
        """ETag and whole length; afterwards `part` is what the body goes on with."""
        etag = answer.headers.get("ETag", "")
        if self._wanted.path.exists() and (not etag or etag == known_etag):
            raise Unchanged
        if answer.status == 206:
            total = self._resume(part, answer, etag)
        else:
            part.begin(etag)
            total = int(answer.headers.get("Content-Length") or 0)
        if 0 <= self._wanted.size_bytes != total and total:
            raise Trouble(f"{total} bytes offered, {self._wanted.size_bytes} expected")
        part.need(total - part.size_bytes)
        return etag or part.etag, total

    def _resume(self, part: Part, answer: Response, etag: str) -> int:
        found = _RANGE.fullmatch(answer.headers.get("Content-Range", ""))
        is_other = bool(part.etag and etag and part.etag != etag)
        if found is None or int(found[1] or -1) != part.size_bytes or is_other:
            part.begin("")
            raise Trouble("the file has changed since its beginning was fetched")
        event(log, "download_resumed", file=self._wanted.name, at_bytes=part.size_bytes)
        return int(found[2])

    def _copy(self, part: Part, answer: Response, total: int) -> None:
        self._on_progress(self._wanted.name, part.size_bytes, total)
        while chunk := web.read(answer, CHUNK_BYTES):
            part.write(chunk)
            self._on_progress(self._wanted.name, part.size_bytes, total)

    def _check(self, part: Part, total: int) -> None:
        if total and part.size_bytes < total:
            raise Trouble(f"broke off after {part.size_bytes} of {total} bytes")
        if self._wanted.sha256 and part.sha256 != self._wanted.sha256:
            part.begin("")
            raise Trouble(f"damaged: its sha256 is not {self._wanted.sha256}")
