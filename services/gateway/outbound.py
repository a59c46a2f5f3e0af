"""One HTTP/1.1 request to another server, its answer read as it comes. Over h11 and asyncio.

A secret header goes to the origin that it was meant for, and not where a redirect leads.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from urllib.parse import urljoin, urlsplit

import h11

from schemas.errors import RequestError

CONNECT_S = 10.0
SILENCE_S = 600.0
MAX_REDIRECTS = 5
CHUNK_BYTES = 64 * 1024
REDIRECTS = (301, 302, 303, 307, 308)
SAME_METHOD = (307, 308)
PORTS = {"http": 80, "https": 443}

Headers = tuple[tuple[str, str], ...]


class Unreachable(Exception):
    """The server could not be reached, broke off, or spoke no HTTP; the message says which."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """Where a request goes. host: without brackets. path: with its query."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def authority(self) -> str:
        """The value of `Host`."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def origin(self) -> tuple[str, str, int]:
        return self.scheme, self.host, self.port

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path}"


@dataclass(frozen=True, kw_only=True)
class Outgoing:
    """A request. headers: without Host and Content-Length, which are ours."""

    method: str
    target: Target
    headers: Headers = ()
    body: bytes = b""


@dataclass(frozen=True, kw_only=True)
class Incoming:
    """An answer. body: its parts as they come; raises Unreachable. hang_up: to be called in every case."""

    status: int
    headers: Headers
    body: AsyncIterator[bytes]
    hang_up: Callable[[], None]


def parse_target(url: str) -> Target:
    """Raises RequestError for what is no http or https address, or holds a user or a password."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise RequestError.invalid(f"{url!r} is no address", "url") from None
    if parts.scheme not in PORTS or not host:
        raise RequestError.invalid("the target must be an http or https address", "url")
    if parts.username is not None or parts.password is not None:
        raise RequestError.invalid("authentication in the target's address is not supported", "url")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if not path.isascii() or any(character <= " " or character == "\x7f" for character in path):
        raise RequestError.invalid("the target's path must be percent-encoded", "url")
    port = PORTS[parts.scheme] if port is None else port
    return Target(scheme=parts.scheme, host=host, port=port, path=path)


async def send(request: Outgoing) -> Incoming:
    """The answer, after redirects; its headers are there, its body comes. Raises Unreachable."""
    for _ in range(MAX_REDIRECTS):
        answer = await _exchange(request)
        following = _following(request, answer)
        if following is None:
            return answer
        answer.hang_up()
        request = following
    raise Unreachable("too many redirects")


def _following(request: Outgoing, answer: Incoming) -> Outgoing | None:
    """The request that a redirect asks for; None where there is none, or where it leads nowhere."""
    location = dict(answer.headers).get("location")
    if answer.status not in REDIRECTS or location is None:
        return None
    try:
        target = parse_target(urljoin(request.target.url, location))
    except RequestError:
        return None
    headers = request.headers if target.origin == request.target.origin else ()
    if answer.status in SAME_METHOD or request.method == "GET":
        return replace(request, target=target, headers=headers)
    return Outgoing(method="GET", target=target, headers=headers)


async def _exchange(request: Outgoing) -> Incoming:
    reader, writer = await _connect(request.target)
    exchange = _Exchange(reader, writer)
    try:
        head = await exchange.begin(request)
    except BaseException:
        writer.close()
        raise
    headers = tuple((name.decode(), value.decode("latin-1")) for name, value in head.headers)
    return Incoming(
        status=head.status_code, headers=headers, body=exchange.body(), hang_up=writer.close
    )


async def _connect(target: Target) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    context = ssl.create_default_context() if target.scheme == "https" else None
    try:
        async with asyncio.timeout(CONNECT_S):
            return await asyncio.open_connection(target.host, target.port, ssl=context)
    except (OSError, TimeoutError, UnicodeError) as error:
        raise Unreachable(f"{target.authority} cannot be reached: {error or 'no answer'}") from None


class _Exchange:
    """One request and its answer on one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._http = h11.Connection(h11.CLIENT)

    async def begin(self, request: Outgoing) -> h11.Response:
        own = [("Host", request.target.authority), ("Connection", "close")]
        if request.body or request.method != "GET":
            own.append(("Content-Length", str(len(request.body))))
        try:
            head = h11.Request(
                method=request.method,
                target=request.target.path,
                headers=[*own, *request.headers],
            )
            parts = (head, h11.Data(data=request.body), h11.EndOfMessage())
            self._writer.write(b"".join(self._http.send(part) or b"" for part in parts))
        except h11.LocalProtocolError as error:
            raise RequestError.invalid(f"the request cannot be passed on: {error}") from None
        event = await self._next()
        while isinstance(event, h11.InformationalResponse):
            event = await self._next()
        if not isinstance(event, h11.Response):
            raise Unreachable("the server hung up without an answer")
        return event

    async def body(self) -> AsyncIterator[bytes]:
        while isinstance(event := await self._next(), h11.Data):
            yield bytes(event.data)

    async def _next(self) -> h11.Event:
        """The next event of the answer. Raises Unreachable."""
        try:
            while True:
                event = self._http.next_event()
                if isinstance(event, h11.Event):
                    return event
                async with asyncio.timeout(SILENCE_S):
                    self._http.receive_data(await self._reader.read(CHUNK_BYTES))
        except (OSError, TimeoutError, h11.RemoteProtocolError) as error:
            raise Unreachable(f"the server broke off: {error or 'no answer'}") from None
