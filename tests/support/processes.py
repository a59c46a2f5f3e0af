"""Programs that tests start, with all that they start in turn. Linux: reads /proc, waits on pidfds."""

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

MARK = "LLAMATAPE_TEST_SESSION"


class Session:
    """One program and every process that it starts: they inherit a variable that marks them."""

    def __init__(
        self, command: list[str], *, folder: Path, env: dict[str, str] | None = None
    ) -> None:
        self.log = folder / f"session-{time.monotonic_ns()}.log"
        self._text = ""
        self._mark = f"{MARK}={self.log}".encode()
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env=os.environ | (env or {}) | {MARK: str(self.log)},
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for pid in [self.process.pid, *self.members()]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    @property
    def stderr(self) -> str:
        return self.log.read_text()

    def wait_for(self, text: str, timeout_s: float = 20.0) -> str:
        """What it has written to stdout once that contains `text`."""
        assert self.process.stdout is not None
        deadline, fd = time.monotonic() + timeout_s, self.process.stdout.fileno()
        while text not in self._text:
            ready, _, _ = select.select([fd], [], [], max(deadline - time.monotonic(), 0))
            chunk = os.read(fd, 65536) if ready else b""
            assert chunk, f"no {text!r} in {self._text!r}; stderr: {self.stderr}"
            self._text += chunk.decode()
        return self._text

    def members(self) -> dict[int, str]:
        """Living processes that it started, itself excepted: pid → command line."""
        pids = _pids_marked(self._mark)
        return {pid: _command(pid) for pid in pids if pid != self.process.pid}

    def one(self, word: str) -> int:
        """The pid of the only member whose command line has `word` as a word of its own or a file's name."""
        found = [pid for pid, line in self.members().items() if word in _words(line)]
        assert len(found) == 1, f"{word}: {self.members()}"
        return found[0]

    def wait_until_alone(self, timeout_s: float) -> dict[int, str]:
        """Members that are still there after `timeout_s` seconds; returns at once when all are gone."""
        deadline = time.monotonic() + timeout_s
        while (left := self.members()) and (rest_s := deadline - time.monotonic()) > 0:
            wait_gone(next(iter(left)), rest_s)
        return left

    def stop(self, number: signal.Signals = signal.SIGTERM, timeout_s: float = 10.0) -> int:
        """Send a signal to the program and wait for its exit code."""
        self.process.send_signal(number)
        return self.process.wait(timeout_s)


def wait_gone(pid: int, timeout_s: float) -> bool:
    """Whether the process ended within `timeout_s` seconds."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([fd], [], [], timeout_s)[0])
    finally:
        os.close(fd)


def _pids_marked(mark: bytes) -> Iterator[int]:
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                if mark in Path(f"/proc/{entry}/environ").read_bytes().split(b"\0"):
                    yield int(entry)


def _command(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ").strip()
    return ""


def _words(line: str) -> set[str]:
    return {Path(word).name for word in line.split()}
