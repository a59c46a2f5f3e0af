"""Keep one program running: restart with backoff, keep its log bounded, stop it for certain."""

import asyncio
import contextlib
import logging
import os
import re
import signal
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from services.cli.errors import StartError
from services.logs import event

log = logging.getLogger(__name__)

FIRST_DELAY_S, MAX_DELAY_S, STABLE_S = 0.2, 5.0, 30.0
LOG_MAX_BYTES = 8 * 1024 * 1024
TAIL_LINES = 50
DRAIN_S = 0.2
_CHUNK = 65536
_TOLD = re.compile(r"(?:^error: |\berror=\"?)(.+?)\"?}?$")


@dataclass(frozen=True, kw_only=True)
class Program:
    """What to run. name: for people and `ps`. log_file: takes stdout and stderr, the old one moves to
    `.1` when it is full. is_shown: they go to our stderr too. pass_fds: descriptors it inherits."""

    name: str
    command: tuple[str, ...]
    env: dict[str, str] = field(repr=False)
    log_file: Path
    is_shown: bool = False
    pass_fds: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Exit:
    """An exit that nobody ordered. code: negative is a signal. n: how many there were. tail: last lines."""

    name: str
    code: int
    n: int
    tail: tuple[str, ...]

    @property
    def reason(self) -> str:
        """Why: what the last line with `error: …` or `error=…` says, else the last line."""
        lines = [line.strip() for line in self.tail if line.strip()]
        told = [found[1] for line in lines if (found := _TOLD.search(line))]
        return (told or lines or [f"exit code {self.code}"])[-1]


def next_delay(previous_s: float, life_s: float) -> float:
    """Seconds to wait before the next start, given the last wait (0 for none) and how long it lived."""
    if life_s >= STABLE_S or previous_s == 0.0:
        return FIRST_DELAY_S
    return min(previous_s * 2, MAX_DELAY_S)


class BoundedLog:
    """A file that never grows beyond 2 × `max_bytes`, the older half of it under `.1`."""

    def __init__(self, path: Path, max_bytes: int = LOG_MAX_BYTES) -> None:
        self._path, self._max_bytes = path, max_bytes
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115 (lives as long as this object)

    def write(self, data: bytes) -> None:
        """A full disk loses log lines, nothing else."""
        with contextlib.suppress(OSError):
            self._file.write(data)
            if self._file.tell() > self._max_bytes:
                self._rotate()

    def _rotate(self) -> None:
        self._file.close()
        os.replace(self._path, f"{self._path}.1")
        self._file = open(self._path, "ab", buffering=0)  # noqa: SIM115

    def close(self) -> None:
        self._file.close()


class Output(asyncio.Protocol):
    """What a program writes, through a pipe: to its log, to our stderr if shown, last lines kept."""

    def __init__(self, program: Program) -> None:
        self._log = BoundedLog(program.log_file)
        self._is_shown = program.is_shown
        self._lines: deque[bytes] = deque(maxlen=TAIL_LINES)
        self._rest = b""
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        self._log.write(data)
        if self._is_shown:
            with contextlib.suppress(OSError):
                sys.stderr.buffer.write(data)
                sys.stderr.buffer.flush()
        *lines, rest = (self._rest + data).split(b"\n")
        self._lines.extend(lines)
        self._rest = rest[-_CHUNK:]

    def connection_lost(self, exc: Exception | None) -> None:
        self._log.close()
        if not self.closed.done():
            self.closed.set_result(None)

    def tail(self) -> tuple[str, ...]:
        return tuple(line.decode("utf-8", "replace") for line in [*self._lines, self._rest])


class Supervised:
    """One program, kept running from `start` to `stop`. Event-loop thread only.

    on_exit: told of every exit that was not ordered; False means do not start it again.
    """

    def __init__(self, program: Program, on_exit: Callable[[Exit], bool]) -> None:
        self.program = program
        self._on_exit = on_exit
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_stopping = False

    @property
    def pid(self) -> int | None:
        """None while it does not run."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    async def start(self) -> None:
        """Returns when the process exists. Raises StartError if it cannot be started."""
        try:
            await self._spawn()
        except OSError as error:
            raise StartError(f"cannot start {self.program.name}: {error.strerror}") from error
        self._task = asyncio.create_task(self._keep(), name=f"keep {self.program.name}")

    async def stop(self, grace_s: float) -> None:
        """SIGTERM, after `grace_s` seconds SIGKILL to its whole group; returns when it is gone."""
        self._is_stopping = True
        self._signal(signal.SIGTERM)
        if self._task is not None:
            await asyncio.wait([self._task], timeout=grace_s if self.pid else 0)
            if self.pid:
                self.kill()
            else:
                self._task.cancel()
            await asyncio.wait([self._task])
        event(log, "stopped", program=self.program.name)

    def kill(self) -> None:
        """SIGKILL to the program and everything that it started in its group."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def _spawn(self) -> None:
        read_fd, write_fd = os.pipe()
        self._output = Output(self.program)
        self._transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: self._output, os.fdopen(read_fd, "rb", buffering=0)
        )
        try:
            self._process = await self._execute(write_fd)
        except OSError:
            self._transport.close()
            raise
        finally:
            os.close(write_fd)
        self._started_at = time.monotonic()
        event(log, "started", program=self.program.name, pid=self._process.pid)

    async def _execute(self, output_fd: int) -> asyncio.subprocess.Process:
        # Its own group: a Ctrl-C of the terminal reaches the launcher alone, which stops in order.
        return await asyncio.create_subprocess_exec(
            *self.program.command,
            env=self.program.env,
            pass_fds=self.program.pass_fds,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output_fd,
            stderr=output_fd,
            process_group=0,
        )

    async def _keep(self) -> None:
        delay_s, n_exits = 0.0, 0
        while True:
            code = await self._wait()
            if self._is_stopping:
                return
            n_exits += 1
            if not self._on_exit(self._exit(code, n_exits)):
                return
            delay_s = next_delay(delay_s, time.monotonic() - self._started_at)
            await asyncio.sleep(delay_s)
            with contextlib.suppress(OSError):
                await self._spawn()

    async def _wait(self) -> int:
        """The exit code, after the last output was read and what it left behind was killed."""
        assert self._process is not None
        code = await self._process.wait()
        self.kill()
        await asyncio.wait([self._output.closed], timeout=DRAIN_S)
        self._transport.close()
        return code

    def _exit(self, code: int, n: int) -> Exit:
        exit_ = Exit(name=self.program.name, code=code, n=n, tail=self._output.tail())
        event(
            log,
            "exited",
            level=logging.WARNING,
            program=exit_.name,
            code=code,
            n=n,
            reason=exit_.reason,
        )
        return exit_
