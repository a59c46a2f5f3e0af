"""The load generator: many streamed requests over raw sockets, in a process of its own.

    echo '{"url": …}' | python -m bench.load

It parses nothing while it reads: it notes when bytes came, and looks into the last of them at the end.
"""

import asyncio
import hashlib
import json
import re
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import Any, cast
from urllib.parse import urlsplit

import uvloop

_PREDICTED = re.compile(rb'"predicted_n":(\d+)')
_TAIL_BYTES = 4096


@dataclass(frozen=True, kw_only=True)
class Job:
    """What to ask. bodies: one request each, all at once. headers: of every request, {n} its number.

    method: POST with a body each, GET without. is_digested: the outcome tells different answers apart.
    """

    url: str
    path: str = "/completion"
    method: str = "POST"
    bodies: list[Any] = field(default_factory=list[Any])
    headers: dict[str, str] = field(default_factory=dict[str, str])
    is_digested: bool = False


@dataclass(kw_only=True)
class Outcome:
    """What came. Times in seconds. ttfts: one per stream. gaps: between chunks of one stream.

    n_tokens: as the server counted them. digests: distinct hashes of whole answers.
    """

    n_tokens: int = 0
    n_bytes: int = 0
    n_complete: int = 0
    n_failed: int = 0
    elapsed_s: float = 0.0
    cpu_s: float = 0.0
    ttfts: list[float] = field(default_factory=list[float])
    gaps: list[float] = field(default_factory=list[float])
    digests: list[str] = field(default_factory=list[str])


class _Stream(asyncio.Protocol):
    """One request on one connection, which the server closes at its end."""

    def __init__(self, request: bytes, is_digested: bool) -> None:
        self._request = request
        self._is_digested = is_digested
        self.tail = b""
        self.n_bytes = 0
        self.times: list[float] = []
        self.kept: list[bytes] = []
        self.sent_at = 0.0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.sent_at = time.perf_counter()
        cast(asyncio.Transport, transport).write(self._request)

    def data_received(self, data: bytes) -> None:
        if self.times or b"data: " in data:
            self.times.append(time.perf_counter())
        self.n_bytes += len(data)
        self.tail = (self.tail + data)[-_TAIL_BYTES:]
        if self._is_digested:
            self.kept.append(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_result(None)

    @property
    def n_tokens(self) -> int:
        found = _PREDICTED.findall(self.tail)
        return int(found[-1]) if found else 0

    @property
    def is_complete(self) -> bool:
        return self.tail.endswith(b"0\r\n\r\n")

    def digest(self) -> str:
        """Of the body, its chunk boundaries taken out."""
        _, _, rest = b"".join(self.kept).partition(b"\r\n\r\n")
        body = hashlib.sha256()
        while rest:
            size, _, rest = rest.partition(b"\r\n")
            n = int(size, 16)
            body.update(rest[:n])
            rest = rest[n + 2 :]
        return body.hexdigest()


def request_bytes(job: Job, number: int, body: object) -> bytes:
    """One HTTP/1.1 request."""
    parts = urlsplit(job.url)
    data = b"" if body is None else json.dumps(body).encode()
    lines = [f"{job.method} {job.path} HTTP/1.1", f"Host: {parts.netloc}", "Connection: close"]
    lines += [f"{name}: {value.replace('{n}', str(number))}" for name, value in job.headers.items()]
    if data:
        lines += ["Content-Type: application/json", f"Content-Length: {len(data)}"]
    return "\r\n".join([*lines, "", ""]).encode() + data


async def run(job: Job) -> Outcome:
    """All requests at once; returns when the last one has ended."""
    parts, loop = urlsplit(job.url), asyncio.get_running_loop()
    host, port = parts.hostname or "127.0.0.1", parts.port or 80
    begun_at, cpu_at = time.perf_counter(), time.process_time()
    requests = [request_bytes(job, number, body) for number, body in enumerate(job.bodies)]
    streams = [_Stream(request, job.is_digested) for request in requests]
    for stream in streams:
        await loop.create_connection(lambda stream=stream: stream, host, port)
    for stream in streams:
        await stream.done
    elapsed_s, cpu_s = time.perf_counter() - begun_at, time.process_time() - cpu_at
    return _outcome(streams, elapsed_s, cpu_s, job.is_digested)


def _outcome(streams: list[_Stream], elapsed_s: float, cpu_s: float, is_digested: bool) -> Outcome:
    outcome = Outcome(elapsed_s=elapsed_s, cpu_s=cpu_s)
    for stream in streams:
        outcome.n_tokens += stream.n_tokens
        outcome.n_bytes += stream.n_bytes
        outcome.n_complete += stream.is_complete
        outcome.n_failed += not stream.is_complete
        if stream.times:
            outcome.ttfts.append(stream.times[0] - stream.sent_at)
        outcome.gaps += [b - a for a, b in zip(stream.times, stream.times[1:], strict=False)]
    if is_digested:
        outcome.digests = sorted({stream.digest() for stream in streams})
    return outcome


def main() -> None:
    job = Job(**json.load(sys.stdin))
    json.dump(asdict(uvloop.run(run(job))), sys.stdout)


if __name__ == "__main__":
    main()
