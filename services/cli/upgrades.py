"""Requests that offer another protocol beside HTTP/1.1 (Java's HttpClient offers `h2c` by default)."""

import re

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_END = b"\r\n\r\n"
_OFFER = re.compile(rb"\r\nupgrade:[^\r\n]*(?=\r\n)", re.IGNORECASE)


class StaysHttp(HttpToolsProtocol):
    """Declines every offer of another protocol, as HTTP allows and llama-server does.

    httptools takes an offer for accepted: the body would be lost, and all that follows on the
    connection. So the parser does not get to see the offer.
    """

    _in_head = True

    def data_received(self, data: bytes) -> None:
        super().data_received(without_offer(data) if self._in_head else data)

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_head = True
        super().on_message_complete()


def without_offer(data: bytes) -> bytes:
    """`data` without the lines of its head, up to the first empty one, that offer a protocol."""
    if b"pgrade:" not in data and b"PGRADE:" not in data:
        return data
    end = data.find(_END)
    n_head = len(data) if end < 0 else end + len(_END)
    return _OFFER.sub(b"", data[:n_head]) + data[n_head:]
