"""Listening sockets. The launcher opens them and the api process inherits them.

So the port stays taken while a killed api process is started again, and clients that come meanwhile
wait in the backlog instead of being refused.
"""

import contextlib
import errno
import os
import socket
import stat
from collections.abc import Iterable
from typing import cast

from services.cli.errors import StartError

VARIABLE = "LLAMATAPE_LISTEN_FDS"
BACKLOG = 2048
WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}
_UNIX_SUFFIX = ".sock"
_Address = tuple[str | int, ...]


def open_sockets(
    hosts: Iterable[str], port: int, *, is_shared: bool = False
) -> list[socket.socket]:
    """Listen on every address; a host that ends in .sock is a UNIX socket. Raises StartError.

    port 0: the system chooses one, the same for all. With several hosts `::` is IPv6 only.
    is_shared: others may listen on the same port too (`SO_REUSEPORT`).
    """
    names = list(hosts)
    with contextlib.ExitStack() as opened:
        sockets: list[socket.socket] = []
        for host in names:
            if host.endswith(_UNIX_SUFFIX):
                found = [_open_unix(host)]
            else:
                found = _open_tcp(host, port, is_only=len(names) == 1, is_shared=is_shared)
            for sock in found:
                sockets.append(opened.enter_context(sock))
                port = port or _port_of(sock)
        opened.pop_all()
    return sockets


def _open_tcp(host: str, port: int, *, is_only: bool, is_shared: bool) -> list[socket.socket]:
    opened: list[socket.socket] = []
    for family, address in _addresses(host, port):
        chosen = (address[0], _port_of(opened[0]), *address[2:]) if opened else address
        is_dual = is_only and host == "::"
        opened.append(_listen(family, chosen, is_dual=is_dual, is_shared=is_shared))
    return opened


def _addresses(host: str, port: int) -> list[tuple[int, _Address]]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        raise StartError(f"host {host} is no address of this machine: see --host") from None
    return [(int(family), cast(_Address, address)) for family, _, _, _, address in found]


def _listen(family: int, address: _Address, *, is_dual: bool, is_shared: bool) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if is_shared:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, not is_dual)
        sock.bind(address)
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        raise _refused(error, f"{address[0]}:{address[1]}") from None
    return sock


def _refused(error: OSError, where: str) -> StartError:
    if error.errno == errno.EADDRINUSE:
        return StartError(f"{where} is taken by another process: choose another with --port")
    return StartError(f"cannot listen on {where}: {error.strerror}")


def _open_unix(path: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _remove_stale(path)
        sock.bind(path)
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        raise _refused(error, path) from None
    return sock


def _remove_stale(path: str) -> None:
    """Unlink a socket that nobody listens on any more."""
    if not os.path.exists(path) or not stat.S_ISSOCK(os.stat(path).st_mode):
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)


def close_sockets(sockets: Iterable[socket.socket]) -> None:
    """Close them and remove the files of UNIX sockets."""
    for sock in sockets:
        path = sock.getsockname() if sock.family == socket.AF_UNIX else ""
        sock.close()
        if path:
            with contextlib.suppress(OSError):
                os.unlink(path)


def _port_of(sock: socket.socket) -> int:
    return 0 if sock.family == socket.AF_UNIX else int(sock.getsockname()[1])


def url_of(sock: socket.socket, *, is_tls: bool = False) -> str:
    """Where a client on this machine reaches it; `unix:<path>` for a UNIX socket."""
    if sock.family == socket.AF_UNIX:
        return f"unix:{sock.getsockname()}"
    host, port = cast("tuple[str, int]", sock.getsockname()[:2])
    host = WILDCARDS.get(host, host)
    scheme = "https" if is_tls else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def inherited() -> list[socket.socket]:
    """The sockets that the launcher passed; none if this process was started alone."""
    numbers = os.environ.pop(VARIABLE, "")
    return [socket.socket(fileno=int(number)) for number in numbers.split(",") if number]
