"""The decoder's end of the socket pair to its front. One thread.

The front's death closes its end, which is how a decoder learns that nobody needs it any more.
"""

import select
import socket
import struct
from collections.abc import Iterable, Iterator
from typing import Protocol

import msgspec

from schemas import codec
from services.engine.protocol import Command, DecoderConfig, Output, Report

LENGTH = struct.Struct(">I")
READ_BYTES = 1 << 18
_ENCODER = msgspec.msgpack.Encoder()
"""The same bytes as `codec.encode`, in a quarter of the time; this is the decode thread's hot path."""


class HasFileno(Protocol):
    """What `select` can wait for."""

    def fileno(self) -> int: ...


class PipeClosed(Exception):
    """The front is gone: there is nobody left to decode for."""


class Pipe:
    """Frames in, frames out."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._buffer = bytearray()

    def read_config(self) -> DecoderConfig:
        """The first frame. Blocks until it is there. Raises PipeClosed, SchemaError."""
        while (frame := self._next_frame()) is None:
            self._fill(can_wait=True)
        return codec.decode(frame, DecoderConfig)

    def read_commands(self, *, can_wait: bool) -> list[Command]:
        """All commands that have come; can_wait: block until one has. Raises PipeClosed, SchemaError."""
        commands = list(self._commands())
        while self._fill(can_wait=can_wait and not commands):
            commands += self._commands()
        return commands

    def wait(self, timeout_s: float | None = None, other: HasFileno | None = None) -> None:
        """Block until something has come, here or for `other`; or for that many seconds."""
        readers = [self._connection] if other is None else [self._connection, other]
        select.select(readers, [], [], timeout_s)

    def write(self, outputs: Iterable[Output]) -> None:
        """Send one report, blocking while the front does not read. Raises PipeClosed."""
        frame = _ENCODER.encode(Report(outputs=tuple(outputs)))
        try:
            self._connection.sendall(LENGTH.pack(len(frame)) + frame)
        except OSError as error:
            raise PipeClosed("the front is gone") from error

    def is_closed(self) -> bool:
        """Whether the front is gone; reads nothing, never blocks."""
        try:
            return self._connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    def _commands(self) -> Iterator[Command]:
        while (frame := self._next_frame()) is not None:
            yield codec.decode(frame, Command)  # pyright: ignore[reportArgumentType]

    def _next_frame(self) -> bytes | None:
        if len(self._buffer) < LENGTH.size:
            return None
        end = LENGTH.size + LENGTH.unpack_from(self._buffer)[0]
        if len(self._buffer) < end:
            return None
        frame = bytes(self._buffer[LENGTH.size : end])
        del self._buffer[:end]
        return frame

    def _fill(self, *, can_wait: bool) -> bool:
        """Read what has come; False when there is nothing and it must not wait."""
        try:
            data = self._connection.recv(READ_BYTES, 0 if can_wait else socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError as error:
            raise PipeClosed("the front is gone") from error
        if not data:
            raise PipeClosed("the front is gone")
        self._buffer += data
        return True
