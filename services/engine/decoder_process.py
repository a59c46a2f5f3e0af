"""The decoder as seen from its front: a child process on the other end of a socket pair.

It is started again whenever it dies. Event-loop thread only.
"""

import asyncio
import contextlib
import logging
import os
import socket
import struct
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from schemas import codec
from schemas.errors import SchemaError
from services.engine.config import EngineSettings
from services.engine.errors import DecoderGone, ModelNotLoadable
from services.engine.protocol import (
    Command,
    DecoderConfig,
    LoadFailed,
    LoadProgress,
    Output,
    Ready,
    Report,
    Stop,
)
from services.engine.watchdog import Vitals, Watchdog, process_state

log = logging.getLogger(__name__)

LENGTH = struct.Struct(">I")
COMMAND = [sys.executable, "-P", "-m", "services.cli", "decoder"]
STOP_GRACE_S = 2.0
RESTART_WAIT_S = 0.1
MAX_FAILED_STARTS = 3


@dataclass(frozen=True, kw_only=True)
class DecoderEvents:
    """What the front does with what it hears. All are called in the event-loop thread, in order.

    on_outputs: of one decode step. on_ready: loaded, also after a restart. on_gone: it died, its
    slots with it. on_progress: fraction of the model loaded, 0–1.
    """

    on_outputs: Callable[[tuple[Output, ...]], None]
    on_ready: Callable[[Ready], None]
    on_gone: Callable[[], None]
    on_progress: Callable[[float], None]


class DecoderProcess:
    """Keeps one decoder running until `stop`."""

    def __init__(self, settings: EngineSettings, events: DecoderEvents) -> None:
        self._settings = settings
        self._events = events
        self._transport: asyncio.Transport | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._failure = ""
        self._is_ready = False
        self._is_stopping = False
        self._is_paused = False
        self._n_frames = 0
        self._watchdog = Watchdog()

    @property
    def is_ready(self) -> bool:
        return self._is_ready

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def run(self) -> None:
        """Start the decoder and keep it alive; returns after `stop`.

        Raises ModelNotLoadable when it says so, DecoderGone when it dies several times in a row
        before it is ready.
        """
        n_failed = 0
        while not self._is_stopping:
            was_ready = await self._run_once()
            n_failed = 0 if was_ready else n_failed + 1
            if self._is_stopping:
                return
            if self._failure:
                raise ModelNotLoadable(self._failure)
            if n_failed >= MAX_FAILED_STARTS:
                raise DecoderGone(f"the decoder died {n_failed} times while it started")
            log.error("action=decoder_died was_ready=%s", was_ready)
            await asyncio.sleep(RESTART_WAIT_S)

    def send(self, command: Command) -> None:
        """Queue one command. What is sent to a dead decoder is lost: `on_gone` tells of it."""
        if (transport := self._open_transport) is not None:
            transport.write(_frame(codec.encode(command)))

    def pause(self) -> None:
        """Hear nothing more for now: the decoder waits as soon as the pipe is full. Idempotent."""
        if not self._is_paused and (transport := self._open_transport) is not None:
            self._is_paused = True
            transport.pause_reading()

    def resume(self) -> None:
        """Go on hearing. Idempotent."""
        if self._is_paused and (transport := self._open_transport) is not None:
            self._is_paused = False
            transport.resume_reading()

    @property
    def _open_transport(self) -> asyncio.Transport | None:
        """None also where the decoder has just died and `on_gone` is still to come: uvloop raises there."""
        transport = self._transport
        return None if transport is None or transport.is_closing() else transport

    def check(self, *, is_busy: bool) -> None:
        """Kill a decoder that is stopped, or that should work and does not; `run` starts the next.

        Call it every second or so. is_busy: it has something to decode.
        """
        process = self._process
        if process is None or process.returncode is not None:
            return
        vitals = Vitals(
            at_s=time.monotonic(),
            n_signs=self._n_frames,
            is_busy=is_busy and self._is_ready and not self._is_paused,
            state=process_state(process.pid),
        )
        if reason := self._watchdog.judge(process.pid, vitals):
            log.error("action=decoder_killed pid=%d reason=%s", process.pid, reason)
            _kill(process)

    async def stop(self) -> None:
        """End the decoder, by force after STOP_GRACE_S."""
        self._is_stopping = True
        self.send(Stop())
        process = self._process
        if process is None or process.returncode is not None:
            return
        try:
            async with asyncio.timeout(STOP_GRACE_S):
                await process.wait()
        except TimeoutError:
            _kill(process)
            await process.wait()

    async def _run_once(self) -> bool:
        ours, theirs = socket.socketpair()
        try:
            # In the front's process group, so that whoever kills that kills both; it ignores Ctrl-C.
            self._process = await asyncio.create_subprocess_exec(
                *COMMAND,
                str(theirs.fileno()),
                pass_fds=(theirs.fileno(),),
                stdin=asyncio.subprocess.DEVNULL,
                env={**os.environ, "GGML_NO_BACKTRACE": "1"},
            )
        finally:
            theirs.close()
        loop = asyncio.get_running_loop()
        frames = _Frames(self._on_frame)
        self._transport, _ = await loop.connect_accepted_socket(lambda: frames, ours)
        self._transport.write(_frame(codec.encode(self._config())))
        await self._process.wait()
        self.resume()  # what it said last is still to be heard
        await frames.closed
        self._transport = None
        was_ready, self._is_ready = self._is_ready, False
        if was_ready and not self._is_stopping:
            self._events.on_gone()
        return was_ready

    def _config(self) -> DecoderConfig:
        settings = self._settings
        return DecoderConfig(
            model_path=settings.model_path,
            n_ctx=settings.n_ctx,
            n_batch=settings.n_batch,
            n_ubatch=settings.n_ubatch,
            n_threads=settings.n_threads,
            n_threads_batch=settings.n_threads_batch,
            n_slots=settings.n_slots,
            is_warmup=settings.is_warmup,
            is_verbose=settings.is_verbose,
            simulate=settings.simulate,
            cpus=settings.cpus,
            model=settings.model,
            context=settings.context,
            caching=settings.caching,
        )

    def _on_frame(self, data: bytes) -> None:
        self._n_frames += 1
        try:
            outputs = codec.decode(data, Report).outputs
        except SchemaError:
            log.exception("action=decoder_unreadable")
            return
        if self._is_ready:
            self._events.on_outputs(outputs)
            return
        for output in outputs:
            self._on_loading(output)

    def _on_loading(self, output: Output) -> None:
        match output:
            case LoadProgress():
                self._events.on_progress(output.fraction)
            case LoadFailed():
                self._failure = output.message
            case Ready():
                self._is_ready = True
                self._events.on_ready(output)
            case _:
                log.error("action=decoder_out_of_order output=%r", output)


class _Frames(asyncio.Protocol):
    """Cuts the byte stream into frames."""

    def __init__(self, on_frame: Callable[[bytes], None]) -> None:
        self._on_frame = on_frame
        self._buffer = bytearray()
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        start = 0
        while len(buffer) - start >= LENGTH.size:
            (length,) = LENGTH.unpack_from(buffer, start)
            end = start + LENGTH.size + length
            if end > len(buffer):
                break
            self._on_frame(bytes(buffer[start + LENGTH.size : end]))
            start = end
        del buffer[:start]

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.closed.done():
            self.closed.set_result(None)


def _kill(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.kill()


def _frame(data: bytes) -> bytes:
    return LENGTH.pack(len(data)) + data
