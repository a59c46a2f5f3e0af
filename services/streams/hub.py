"""The tapes of this process: one followed log and one fold per generation, however many readers."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass

from schemas.errors import LlamatapeError
from schemas.events import Requested
from services.streams.config import StreamsSettings
from services.streams.errors import StreamBroken, StreamNotFound
from services.streams.logs import FollowedLog, Logs
from services.streams.tape import Rendering, Tape

log = logging.getLogger(__name__)

CLOSE_S = 2.0
"""Background work that the broker keeps waiting must not hold up the end of the process."""

OnTape = Callable[[Tape], None]
_Key = tuple[str, Rendering | None]


@dataclass(kw_only=True, eq=False)
class _Reel:
    """A tape, the log that fills it, and what becomes of it when nobody reads.

    n_unused_bytes: what it counts for among the unused ones, as it was when its last reader left.
    """

    tape: Tape
    followed: FollowedLog
    starting: "asyncio.Task[None] | None" = None
    lingering: asyncio.TimerHandle | None = None
    n_unused_bytes: int = 0


class Hub:
    """Opens tapes and keeps them while they have readers, and a while after that.

    Event-loop thread only. Bytes never depend on its timers: they only decide what stays in memory.
    """

    def __init__(self, logs: Logs, settings: StreamsSettings) -> None:
        self.logs = logs
        self._settings = settings
        self._reels: dict[_Key, _Reel] = {}
        self._unused: dict[_Key, _Reel] = {}
        self._n_unused_bytes = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._when_opened: list[OnTape] = []
        self._when_done: list[OnTape] = []

    def when_opened(self, callback: OnTape) -> None:
        """Call `callback` for every tape that this process begins to follow, once it is known."""
        self._when_opened.append(callback)

    def when_done(self, callback: OnTape) -> None:
        """Call `callback` for every tape whose end this process sees, renderings of a reader's
        choice excepted."""
        self._when_done.append(callback)

    async def open(
        self,
        generation_id: str,
        *,
        is_new: bool = False,
        requested: Requested | None = None,
        rendering: Rendering | None = None,
    ) -> Tape:
        """The tape of a generation, as soon as its first event is known; history goes on arriving.

        The caller holds it: `release` it, or use it as a context manager. is_new: its log is still
        empty, and from now on followed; `requested` is then what will open it. rendering: other than
        the client's. Raises StreamNotFound, BusUnavailable, UnknownProjection.
        """
        reel = self._reels.get((generation_id, rendering))
        if reel is None:
            reel = self._thread(Tape(generation_id, self, rendering), is_new, requested)
        reel.tape.retain()
        try:
            await _until_known(reel, is_new=is_new)
            if reel.tape.requested is None and not reel.tape.is_broken:
                raise StreamNotFound(f"there is no generation {generation_id}")
        except BaseException:
            reel.tape.release()
            raise
        return reel.tape

    def peek(self, generation_id: str) -> Tape | None:
        """The client's own tape if it is in memory. Not held: look, and let go."""
        reel = self._reels.get((generation_id, None))
        return None if reel is None else reel.tape

    def forget(self, generation_id: str) -> None:
        """Its log left the broker, perhaps on somebody's order: who opens it from now on looks anew."""
        for reel in [each for key, each in self._reels.items() if key[0] == generation_id]:
            if reel.tape.is_done:
                self._drop(reel)

    @property
    def n_tapes(self) -> int:
        """How many tapes are in memory."""
        return len(self._reels)

    def running(self) -> Iterator[Tape]:
        """The tapes that are read now and not at their end."""
        for reel in self._reels.values():
            if reel.tape.n_readers and reel.tape.requested is not None and not reel.tape.is_done:
                yield reel.tape

    def spawn(self, work: Coroutine[object, object, None]) -> None:
        """Run `work` in the background; `close` waits a moment for it. What it raises is logged."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)

    async def close(self) -> None:
        """Stop following. Readers that wait for more are interrupted, so that their clients resume
        elsewhere; background work gets a moment to end."""
        for reel in list(self._reels.values()):
            reel.tape.interrupt(StreamBroken("this reader stops; resume the stream from another"))
            self._drop(reel)
            if reel.starting is not None:
                reel.starting.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_S)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # The owner of its tapes.

    def on_used(self, tape: Tape) -> None:
        reel = self._reels.get(_key(tape))
        if reel is not None and reel.tape is tape:
            self._use(reel)

    def on_unused(self, tape: Tape) -> None:
        reel = self._reels.get(_key(tape))
        if reel is None or reel.tape is not tape:
            return
        if tape.requested is None or tape.is_broken:
            self._drop(reel)
            return
        loop = asyncio.get_running_loop()
        reel.lingering = loop.call_later(self._settings.linger_s, self._drop, reel)
        reel.n_unused_bytes = tape.n_bytes
        self._n_unused_bytes += reel.n_unused_bytes
        self._unused[_key(tape)] = reel
        while self._n_unused_bytes > self._settings.linger_max_bytes and self._unused:
            self._drop(next(iter(self._unused.values())))

    def on_done(self, tape: Tape) -> None:
        reel = self._reels.get(_key(tape))
        if reel is not None:
            self.spawn(reel.followed.stop())
        if tape.rendering is None:
            for callback in self._when_done:
                callback(tape)

    def _thread(self, tape: Tape, is_new: bool, requested: Requested | None) -> _Reel:
        if requested is not None:
            tape.expect(requested)

        def on_lost(error: LlamatapeError) -> None:
            tape.interrupt(StreamBroken(str(error)))
            self._drop(reel)

        followed = self.logs.follow(tape.generation_id, tape.take, on_lost)
        reel = _Reel(tape=tape, followed=followed)
        self._reels[_key(tape)] = reel
        reel.starting = asyncio.create_task(self._start(reel, is_new))
        # Its openers may all be gone when it fails.
        reel.starting.add_done_callback(lambda task: task.cancelled() or task.exception())
        return reel

    async def _start(self, reel: _Reel, is_new: bool) -> None:
        try:
            await reel.followed.start(is_new=is_new)
        except BaseException:
            reel.tape.interrupt(StreamBroken("its log cannot be read now; resume the stream"))
            self._drop(reel)
            raise
        if reel.tape.requested is not None:
            for callback in self._when_opened:
                callback(reel.tape)

    def _drop(self, reel: _Reel) -> None:
        key = _key(reel.tape)
        if self._reels.get(key) is not reel:
            return
        del self._reels[key]
        self._use(reel)
        self.spawn(reel.followed.stop())

    def _use(self, reel: _Reel) -> None:
        """Take it out of the unused ones."""
        if self._unused.pop(_key(reel.tape), None) is not None:
            self._n_unused_bytes -= reel.n_unused_bytes
        if reel.lingering is not None:
            reel.lingering.cancel()

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("action=background_work_failed", exc_info=error)


def _key(tape: Tape) -> _Key:
    return tape.generation_id, tape.rendering


async def _until_known(reel: _Reel, *, is_new: bool) -> None:
    """Until the first event was read, or all was and it is not there; a new log's until it is
    followed. Raises what following raises."""
    starting = reel.starting
    assert starting is not None
    while not starting.done() and (is_new or reel.tape.requested is None):
        waited = (starting,) if is_new else (starting, reel.tape.next_change())
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
    if starting.cancelled():
        raise StreamBroken("this reader stops")
    if starting.done():
        starting.result()
