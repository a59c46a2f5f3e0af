"""A front for tests: a real decoder process at the other end of a socket pair. Blocking, one thread."""

import socket
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from schemas import codec
from schemas.events import ChoiceEnd
from schemas.params import Limits, Params
from services.engine.decoder.pipe import LENGTH
from services.engine.protocol import (
    Admit,
    Broken,
    Cancel,
    ChoiceJob,
    Command,
    DecoderConfig,
    Emitted,
    Ended,
    LoadFailed,
    Output,
    Ready,
    Report,
    SlotsStarted,
)

ROOT = Path(__file__).resolve().parents[2]
STORIES = str(ROOT / "tests" / "models" / "stories-tiny.gguf")
TIMEOUT_S = 60.0


@dataclass
class Run:
    """What a decoder reported of one choice."""

    emitted: list[Emitted] = field(default_factory=list)
    end: ChoiceEnd | None = None

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(token.id for token in self.emitted)

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(token.text for token in self.emitted)

    @property
    def text(self) -> str:
        return "".join(self.texts) + (self.end.tail if self.end else "")


class DecoderClient:
    """One decoder process. `reports` keeps every report, each from one step."""

    def __init__(self, config: DecoderConfig) -> None:
        self.connection, theirs = socket.socketpair()
        self.connection.settimeout(TIMEOUT_S)
        command = [sys.executable, "-m", "services.cli", "decoder", str(theirs.fileno())]
        self.process = subprocess.Popen(command, pass_fds=[theirs.fileno()], cwd=ROOT)
        theirs.close()
        self.reports: list[Report] = []
        self._buffer = bytearray()
        self._send(codec.encode(config))

    def send(self, *commands: Command) -> None:
        """Send commands in one write, so that the decoder finds all of them together."""
        frames = [codec.encode(command) for command in commands]
        self.connection.sendall(b"".join(LENGTH.pack(len(f)) + f for f in frames))

    def read(self) -> Report:
        """The next report."""
        while (frame := self._frame()) is None:
            data = self.connection.recv(1 << 16)
            assert data, "the decoder closed its end"
            self._buffer += data
        report = codec.decode(frame, Report)
        self.reports.append(report)
        return report

    def read_until(self, is_it: Callable[[Output], bool]) -> Output:
        """Read reports until one holds such an output."""
        while True:
            for output in self.read().outputs:
                if is_it(output):
                    return output

    def wait_ready(self) -> Ready:
        ready = self.read_until(lambda output: isinstance(output, Ready | LoadFailed))
        assert isinstance(ready, Ready), ready
        return ready

    def run(self, *admits: Admit) -> dict[tuple[str, int], Run]:
        """Run generations to their ends: what was reported, by generation and choice."""
        self.send(*admits)
        runs: dict[tuple[str, int], Run] = defaultdict(Run)
        open_choices = {(a.generation_id, job.choice) for a in admits for job in a.choices}
        while open_choices:
            for output in self.read().outputs:
                match output:
                    case Emitted():
                        runs[output.generation_id, output.choice].emitted.append(output)
                    case Ended():
                        key = output.generation_id, output.end.choice
                        runs[key].end = output.end
                        open_choices.remove(key)
                    case Broken():
                        raise AssertionError(output)
                    case _:
                        pass
        return runs

    def run_one(self, admit: Admit) -> Run:
        return self.run(admit)[admit.generation_id, admit.choices[0].choice]

    def cancel(self, generation_id: str) -> None:
        self.send(Cancel(generation_id=generation_id))

    def started(self, generation_id: str) -> SlotsStarted:
        """What was reported when that generation got its slots."""
        outputs = (output for report in self.reports for output in report.outputs)
        starts = (o for o in outputs if isinstance(o, SlotsStarted))
        return next(start for start in starts if start.generation_id == generation_id)

    def wait(self) -> int:
        """The exit code."""
        return self.process.wait(TIMEOUT_S)

    def close(self) -> None:
        """Let the decoder go the normal way, or else kill it."""
        self.connection.close()
        try:
            self.process.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise

    def _send(self, frame: bytes) -> None:
        self.connection.sendall(LENGTH.pack(len(frame)) + frame)

    def _frame(self) -> bytes | None:
        if len(self._buffer) < LENGTH.size:
            return None
        end = LENGTH.size + LENGTH.unpack_from(self._buffer)[0]
        if len(self._buffer) < end:
            return None
        frame = bytes(self._buffer[LENGTH.size : end])
        del self._buffer[:end]
        return frame


def config(**changes: object) -> DecoderConfig:
    """The tiny model, four slots of 512 tokens; one thread, so that busy cores hurt less."""
    fields = {"model_path": STORIES, "n_ctx": 2048, "n_threads": 1, **changes}
    return codec.convert(fields, DecoderConfig)


@contextmanager
def decoder(**changes: object) -> Iterator[DecoderClient]:
    """A loaded decoder."""
    client = DecoderClient(config(**changes))
    try:
        client.wait_ready()
        yield client
    finally:
        client.close()


def params(**changes: object) -> Params:
    """Parameters by name, wherever they belong: sampling or limits."""
    names = set(Limits.__struct_fields__)
    limits = {key: value for key, value in changes.items() if key in names}
    sampling = {key: value for key, value in changes.items() if key not in names}
    return codec.convert({"limits": limits, "sampling": sampling}, Params)


def admit(generation_id: str, prompt: tuple[int, ...], seed: int = 1, **changes: object) -> Admit:
    """A generation of one choice."""
    job = ChoiceJob(choice=0, prompt=prompt, seed=seed)
    return Admit(generation_id=generation_id, choices=(job,), params=params(**changes))
