"""A model hub on 127.0.0.1, and a place for plain addresses, with the faults that real ones have.

Serves `/api/models/<repo>/refs`, `/api/models/<repo>/tree/<commit>`, `/<repo>/resolve/<commit>/<path>`
with ETag and Range, and `/files/<name>`. Each request is noted; faults are taken off one by one.
"""

import hashlib
import json
import re
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"
_API = re.compile(r"/api/models/([^/]+/[^/]+)/(refs|tree)(?:/.*)?")
_FILE = re.compile(r"/([^/]+/[^/]+)/resolve/[^/]+/(.+)")
_RANGE = re.compile(r"bytes=(\d+)-")


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One request: its path and its headers, names in lower case."""

    path: str
    headers: Mapping[str, str]


@dataclass(kw_only=True)
class Fault:
    """What goes wrong with one answer for a file. cut_at: bytes of the body before the connection
    ends. status: instead of the file. location: where a redirect leads. body: instead of the right
    one. headers: further ones."""

    cut_at: int | None = None
    status: int = 0
    location: str = ""
    body: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict[str, str])


class Hub:
    """repos: repository → path → content. files: name → content, below /files/."""

    def __init__(self) -> None:
        self.repos: dict[str, dict[str, bytes]] = {}
        self.files: dict[str, bytes] = {}
        self.faults: list[Fault] = []
        self.asked: list[Asked] = []
        self.token = ""
        self.has_etags = True
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    @contextmanager
    def running(self) -> Iterator["Hub"]:
        thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()

    def asked_for(self, word: str) -> list[Asked]:
        """Requests whose path has `word`."""
        return [asked for asked in self.asked if word in asked.path]

    def find(self, path: str) -> bytes | dict[str, Any] | list[Any] | None:
        """What stands at a path: a file's content, or JSON."""
        if api := _API.fullmatch(path):
            return self._api(api[1], api[2])
        if (found := _FILE.fullmatch(path)) and found[1] in self.repos:
            return self.repos[found[1]].get(found[2])
        return self.files.get(path.removeprefix("/files/")) if path.startswith("/files/") else None

    def _api(self, repo: str, what: str) -> dict[str, Any] | list[Any] | None:
        if repo not in self.repos:
            return None
        if what == "refs":
            branch = {"name": "main", "ref": "refs/heads/main", "targetCommit": COMMIT}
            return {"branches": [{"name": "../x", "targetCommit": COMMIT}, branch]}
        return [_entry(path, content) for path, content in self.repos[repo].items()]


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that are killed in the middle of a download are what some tests are about."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def oid_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _entry(path: str, content: bytes) -> dict[str, Any]:
    lfs = {"oid": oid_of(content), "size": len(content), "pointerSize": 134}
    return {"type": "file", "path": path, "oid": "f" * 40, "size": len(content), "lfs": lfs}


def _handler(hub: Hub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Quiet."""

        def do_GET(self) -> None:
            path = unquote(urlsplit(self.path).path)
            headers = {name.lower(): value for name, value in self.headers.items()}
            hub.asked.append(Asked(path=path, headers=headers))
            found = hub.find(path)
            if hub.token and headers.get("authorization") != f"Bearer {hub.token}":
                self._answer(401, json.dumps({"error": "Invalid credentials"}).encode())
            elif found is None:
                self._answer(404, json.dumps({"error": "Repository not found"}).encode())
            elif isinstance(found, bytes):
                self._file(found, hub.faults.pop(0) if hub.faults else Fault())
            else:
                self._answer(200, json.dumps(found).encode())

        def _file(self, content: bytes, fault: Fault) -> None:
            extra = dict(fault.headers)
            if fault.location:
                extra["Location"] = fault.location
            if fault.status:
                return self._answer(fault.status, b"", extra)
            body = content if fault.body is None else fault.body
            etag = f'"{oid_of(body)}"'
            if hub.has_etags:
                extra.setdefault("ETag", etag)
            if self.headers.get("If-None-Match") == etag:
                return self._answer(304, b"", extra)
            return self._ranged(body, etag, extra, fault.cut_at)

        def _ranged(
            self, body: bytes, etag: str, extra: dict[str, str], cut_at: int | None
        ) -> None:
            wanted = _RANGE.fullmatch(self.headers.get("Range", ""))
            is_other = self.headers.get("If-Range") not in (None, etag)
            if wanted is None or is_other:
                return self._answer(200, body, extra, cut_at)
            begin = int(wanted[1])
            if begin >= len(body):
                return self._answer(416, b"", {"Content-Range": f"bytes */{len(body)}"})
            extra["Content-Range"] = f"bytes {begin}-{len(body) - 1}/{len(body)}"
            return self._answer(206, body[begin:], extra, cut_at)

        def _answer(
            self,
            status: int,
            body: bytes,
            extra: dict[str, str] | None = None,
            cut_at: int | None = None,
        ) -> None:
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **(extra or {})}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body[:cut_at])
            self.close_connection = self.close_connection or cut_at is not None

    return Handler
