"""The rendered stream of one generation: frames in memory, and readers that wait for more.

However many readers there are, the log is folded once. Everything runs in the event-loop thread.
"""

import asyncio
import logging
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import NamedTuple, Protocol

import msgspec

from schemas.events import Event, Requested
from schemas.generation import Generation
from services.bus.log import Entry
from services.streams.errors import StreamBroken
from services.streams.projections import Projection, Result, dialect_of_view, projection_for
from services.streams.projections.frames import PING, numbered

log = logging.getLogger(__name__)

MAX_CHUNK_BYTES = 256 * 1024
"""A reader gets at most about this much at once, so that a slow client holds no copy of a long stream."""


class Rendering(NamedTuple):
    """How readers see a log. view: openai, anthropic, responses or native, "" for the client's own
    dialect. is_numbered: whether frames carry their numbers."""

    view: str = ""
    is_numbered: bool = True


class TapeOwner(Protocol):
    """Whoever keeps tapes and hears of their turns."""

    def on_used(self, tape: "Tape") -> None:
        """The first reader came."""
        ...

    def on_unused(self, tape: "Tape") -> None:
        """The last reader left."""
        ...

    def on_done(self, tape: "Tape") -> None:
        """Nothing more will come."""
        ...


class Tape:
    """Frames of one generation; numbered from 1 where the stream is resumable.

    rendering: as a reader chose, always as a stream; None: as the client asked for it.

    Hold it (`retain` and `release`, or as a context manager, which releases) for as long as it is
    looked at; readers hold it themselves. Bytes and numbers are a pure function of the log.
    """

    def __init__(
        self,
        generation_id: str,
        owner: TapeOwner | None = None,
        rendering: Rendering | None = None,
    ) -> None:
        self.generation_id = generation_id
        self.rendering = rendering
        self.n_readers = 0
        self._owner = owner
        self._projection: Projection | None = None
        self._is_numbered = False
        self._last_seq = 0
        self._frames: list[bytes] = []
        self._ends: list[int] = []
        self._waiters: list[asyncio.Future[None]] = []
        self._error: StreamBroken | None = None

    # What it shows.

    @property
    def requested(self) -> Requested | None:
        """The log's first event; None until it is known."""
        return None if self._projection is None else self._projection.requested

    @property
    def generation(self) -> Generation:
        """The folded state of the log as far as it was read."""
        state = Generation() if self._projection is None else self._projection.generation
        return msgspec.structs.replace(state, last_seq=self._last_seq)

    @property
    def projection(self) -> Projection:
        """The fold. Only once `requested` is known."""
        assert self._projection is not None, "the log's first event was not read yet"
        return self._projection

    @property
    def is_started(self) -> bool:
        return self._projection is not None and self._projection.is_started

    @property
    def is_done(self) -> bool:
        return self._projection is not None and self._projection.is_done

    @property
    def is_broken(self) -> bool:
        return self._error is not None

    @property
    def n_bytes(self) -> int:
        return self._ends[-1] if self._ends else 0

    @property
    def n_frames(self) -> int:
        return len(self._frames)

    async def wait_started(self) -> None:
        """Until headers may go out (or it is over). Raises StreamBroken."""
        while not self.is_started:
            await self.next_change()

    async def wait_done(self) -> None:
        """Until the log is closed. Raises StreamBroken."""
        while not self.is_done:
            await self.next_change()

    def result(self) -> Result:
        """The answer that is not streamed, once it is done."""
        return self.projection.result()

    def read(self, from_byte: int = 0, after_frame: int = 0) -> "TapeReader":
        """A reader from that byte (from 0), or of the frames after that number (from 1). It holds
        the tape from now until it is exhausted or closed."""
        return TapeReader(self, lambda: self.end_of(after_frame) if after_frame else from_byte)

    def read_after_event(self, number: int) -> "TapeReader":
        """A reader of what comes after event `number` (from 0); pings are no events."""
        return TapeReader(self, lambda: self.end_of_event(number))

    def end_of(self, frame: int) -> int | None:
        """Where frame number `frame` ends, in bytes; None if it is not there yet."""
        if frame == 0:
            return 0
        return self._ends[frame - 1] if frame <= len(self._ends) else None

    def end_of_event(self, number: int) -> int | None:
        """Where event `number` (from 0) ends, in bytes; None if it is not there yet."""
        n_events = 0
        for frame, end in zip(self._frames, self._ends, strict=True):
            n_events += not frame.endswith(PING)
            if n_events > number:
                return end
        return None

    def cut(self, from_byte: int) -> bytes:
        """What is there from that byte on, about MAX_CHUNK_BYTES of it."""
        first = bisect_right(self._ends, from_byte)
        if first == len(self._frames):
            return b""
        last = bisect_left(self._ends, from_byte + MAX_CHUNK_BYTES, first)
        n_skipped = from_byte - (self._ends[first - 1] if first else 0)
        return b"".join(self._frames[first : last + 1])[n_skipped:]

    def next_change(self) -> asyncio.Future[None]:
        """Done when something was added. Raises StreamBroken if nothing will ever be."""
        if self._error is not None:
            # A new one for each reader: a shared one would gather the tracebacks of all.
            raise StreamBroken(*self._error.args)
        future = asyncio.get_running_loop().create_future()
        self._waiters.append(future)
        return future

    # Who looks at it.

    def retain(self) -> None:
        self.n_readers += 1
        if self.n_readers == 1 and self._owner is not None:
            self._owner.on_used(self)

    def release(self) -> None:
        self.n_readers -= 1
        if self.n_readers == 0 and self._owner is not None:
            self._owner.on_unused(self)

    def __enter__(self) -> "Tape":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.release()

    # How it grows.

    def expect(self, requested: Requested) -> None:
        """The log will begin with that event. Raises UnknownProjection."""
        if self._projection is None:
            self._projection = self._project(requested)
            self._is_numbered = (
                requested.conversation is not None
                if self.rendering is None
                else self.rendering.is_numbered
            )

    def _project(self, requested: Requested) -> Projection:
        if self.rendering is None:
            return projection_for(requested)
        dialect = dialect_of_view(self.rendering.view, requested)
        return projection_for(requested, dialect=dialect, is_streamed=True)

    def take(self, entry: Entry) -> None:
        """Add the next entry of the log. Never raises: what cannot be rendered breaks the tape."""
        was_done = self.is_done
        try:
            self._add(entry.events)
        except Exception as error:
            log.exception("action=stream_broken generation=%s", self.generation_id)
            self.interrupt(StreamBroken(f"cannot render entry {entry.seq}: {error}"))
        self._last_seq = entry.seq
        self._wake()
        if self.is_done and not was_done and self._owner is not None:
            self._owner.on_done(self)

    def interrupt(self, error: StreamBroken) -> None:
        """Readers that wait for more get `error`; what is there can still be read."""
        self._error = self._error or error
        self._wake()

    def _add(self, events: Iterable[Event]) -> None:
        for event in events:
            if isinstance(event, Requested):
                self.expect(event)
            if self._projection is not None:
                for frame in self._projection.apply(event):
                    self._append(frame)

    def _append(self, frame: bytes) -> None:
        if self._is_numbered:
            frame = numbered(frame, len(self._frames) + 1)
        self._ends.append(self.n_bytes + len(frame))
        self._frames.append(frame)

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for future in waiters:
            if not future.done():
                future.set_result(None)


class TapeReader:
    """Chunks of one tape, in order, to its end; each holds all that came since the last one."""

    def __init__(self, tape: Tape, locate: Callable[[], int | None]) -> None:
        """locate: the byte to begin at; None while it is not there yet."""
        self._tape = tape
        self._locate = locate
        self._position: int | None = None
        self._is_open = True
        tape.retain()

    def __aiter__(self) -> "TapeReader":
        return self

    async def __anext__(self) -> bytes:
        """The next chunk, never empty. Raises StreamBroken."""
        while self._is_open:
            if chunk := self._advance():
                return chunk
            if self._tape.is_done:
                break
            await self._more()
        await self.aclose()
        raise StopAsyncIteration

    async def _more(self) -> None:
        try:
            await self._tape.next_change()
        except StreamBroken:
            await self.aclose()
            raise

    async def aclose(self) -> None:
        """Let go of the tape. Idempotent."""
        if self._is_open:
            self._is_open = False
            self._tape.release()

    def _advance(self) -> bytes:
        if self._position is None:
            self._position = self._locate()
        if self._position is None:
            return b""
        chunk = self._tape.cut(self._position)
        self._position += len(chunk)
        return chunk


def render(generation_id: str, entries: Iterable[Entry]) -> Tape:
    """The tape of stored entries, without following the log."""
    tape = Tape(generation_id)
    for entry in entries:
        tape.take(entry)
    return tape
