"""Readers that read nothing: neither the engine nor other readers wait, and memory stays bounded."""

import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests.e2e.test_simulated import simulated
from tests.support.platform import client, url_of
from tests.support.processes import Session

N_TOKENS = 20_000
N_STUCK = 8
MAX_GROWTH_BYTES = 64 * 1024 * 1024
MORE_THAN_BUFFERS = 4 * 1024 * 1024
NAME = "long"
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    flags = ("-np", "4", "-c", str(4 * 32_768))
    folder = tmp_path_factory.mktemp("slow")
    with simulated(folder, "tokens_per_s=2500", *flags) as running:
        yield running


def resident_bytes(session: Session) -> int:
    pid = session.one("api")
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES


def ask(url: str, method: str, path: str, body: bytes = b"", **headers: str) -> socket.socket:
    """A request whose answer nobody reads yet, over a socket that holds little."""
    place = urlsplit(url)
    assert place.hostname is not None
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
    sock.connect((place.hostname, place.port))
    lines = {"Host": "x", "Connection": "close", "Content-Length": str(len(body)), **headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    sock.sendall(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body)
    return sock


def look(http: httpx.Client, is_right: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """What is known of the conversation, as soon as that is right."""
    while True:  # nobody tells but who is asked
        found = http.post("/v1/streams/lookup", json={"conversation_ids": [NAME]}).json()
        if found and is_right(found[0]):
            return found[0]
        time.sleep(0.05)


def rest_of(sock: socket.socket) -> bytes:
    """The body of a chunked answer, read to its end."""
    raw = b""
    while piece := sock.recv(1 << 20):
        raw += piece
    body, at = b"", raw.index(b"\r\n\r\n") + 4
    while (end := raw.index(b"\r\n", at)) and (size := int(raw[at:end], 16)):
        body += raw[end + 2 : end + 2 + size]
        at = end + 2 + size + 2
    return body


def test_nobody_waits_for_those_who_read_nothing(session: Session) -> None:
    url = url_of(session)
    request = {
        "prompt": "a",
        "n_predict": N_TOKENS,
        "stream": True,
        "n_probs": 8,
        "ignore_eos": True,
    }
    with client(url) as http, ExitStack() as stack:
        http.post("/completion", json=request | {"n_predict": 50, "stream": False})
        before = resident_bytes(session)
        headers = {"X-Conversation-Id": NAME, "Content-Type": "application/json"}
        body = json.dumps(request).encode()
        first = stack.enter_context(ask(url, "POST", "/completion", body, **headers))
        look(http, lambda entry: True)
        path = f"/v1/stream?conv_id={NAME}"
        stuck = [stack.enter_context(ask(url, "GET", path)) for _ in range(N_STUCK)]
        others = [http.post("/completion", json=request | {"n_predict": 200}) for _ in range(3)]
        assert [n_predicted(each) for each in others] == [200] * 3
        n_bytes = look(http, lambda entry: entry["is_done"])["total_bytes"]
        assert resident_bytes(session) - before < MAX_GROWTH_BYTES
        whole = http.get("/v1/stream", params={"conv_id": NAME}).content
        assert len(whole) == n_bytes > MORE_THAN_BUFFERS
        assert rest_of(first) == whole
        assert rest_of(stuck[0]) == whole


def n_predicted(response: httpx.Response) -> int:
    """As the last frame of a stream says."""
    assert response.status_code == 200
    frames = [line for line in response.text.splitlines() if line.startswith("data: {")]
    return json.loads(frames[-1].removeprefix("data: "))["tokens_predicted"]
