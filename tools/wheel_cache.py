"""The llama-cpp-python wheel: built once per kind of machine, kept in the user's cache. Standard library only.

The build uses `-march=native`, so a wheel belongs to a processor's instruction sets as well as to the platform, the
pinned source and the flags; all of them make the key. A wheel appears in the cache by one rename, so that neither an
abort nor two builds at once leave half a file there.
"""

import fcntl
import hashlib
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parent.parent
LLAMA_LOCK = ROOT / "requirements-llama.lock"
CMAKE_INCLUDE = ROOT / "deploy" / "llama_cpp.cmake"
BUILD_VARIABLES = ("CMAKE_ARGS", "CC", "CXX", "CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS")
INSTRUCTION_SETS = re.compile(
    r"^(sse|ssse|avx|amx|fma|f16c|bmi|popcnt|lzcnt|abm|movbe|gfni|vaes|vpclmul|neon|asimd|sve|sme|fp|i8mm|bf16|dotprod|rvv)"
)
PROGRESS = re.compile(r"^\s*\[\s*(\d+)(?:/(\d+)|%)\]\s*(.*)")
SAY_EVERY_S = 15


class WheelError(Exception):
    """What is wrong and what to do next, in one line."""


def cache_key() -> str:
    """Name of the cache folder for this source, platform, processor and flags."""
    pinned = re.search(r"llama-cpp-python==(\S+)", LLAMA_LOCK.read_text())
    if pinned is None:
        raise WheelError(f"{LLAMA_LOCK.name} pins no llama-cpp-python")
    flags = [f"{name}={os.environ.get(name, '')}" for name in BUILD_VARIABLES]
    machine = [*_instruction_sets(), *platform.libc_ver()]
    parts = [_pinned_hashes(), _commands(CMAKE_INCLUDE), *flags, *machine]
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
    system = re.sub(r"\W+", "_", sysconfig.get_platform())
    return f"{pinned[1]}-{system}-{digest}"


def _pinned_hashes() -> str:
    return " ".join(re.findall(r"sha256:\w+", LLAMA_LOCK.read_text()))


def _commands(path: Path) -> str:
    """A CMake file without its comments."""
    lines = (line.split("#")[0].strip() for line in path.read_text().splitlines())
    return "\n".join(line for line in lines if line)


def _instruction_sets() -> list[str]:
    """What `-march=native` depends on: the processor's instruction sets, or its name where those cannot be read."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return [platform.machine(), platform.processor()]
    flags = re.search(r"^(?:flags|Features|isa)\s*:(.*)$", text, re.MULTILINE)
    names = flags[1].split() if flags else [platform.processor()]
    return sorted({name for name in names if INSTRUCTION_SETS.match(name)})


def cache_folder(key: str) -> Path:
    """Where the wheel of this key lives: `$XDG_CACHE_HOME/llamatape/wheels/KEY`."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "llamatape" / "wheels" / key


def cached_wheel(key: str) -> Path | None:
    """The wheel, if an earlier run built it."""
    return next(cache_folder(key).glob("llama_cpp_python-*.whl"), None)


def wheel(key: str, python: Path) -> Path:
    """The cached wheel, built first where there is none; blocks for minutes then.

    `python` has scikit-build-core installed. Raises WheelError.
    """
    if found := cached_wheel(key):
        return found
    folder = cache_folder(key)
    folder.mkdir(parents=True, exist_ok=True)
    with _one_build_at_a_time(folder):
        return cached_wheel(key) or _build(folder, python)


def check_tools() -> None:
    """Raise WheelError unless a C and a C++ compiler and CMake are there."""
    wanted = {
        "C compiler": [os.environ.get("CC", ""), "cc", "gcc", "clang"],
        "C++ compiler": [os.environ.get("CXX", ""), "c++", "g++", "clang++"],
        "CMake": ["cmake"],
    }
    for what, names in wanted.items():
        if not any(shutil.which(name.split()[0]) for name in names if name):
            raise WheelError(
                f"no {what} found, and llama.cpp has to be compiled once: install one "
                "(on Debian: apt-get install g++ cmake; on macOS: xcode-select --install, brew install cmake)"
            )


def _build(folder: Path, python: Path) -> Path:
    check_tools()
    _say("building llama.cpp from source: takes 3 to 12 minutes on two cores, once per machine")
    with tempfile.TemporaryDirectory(prefix="build-", dir=folder) as scratch:
        log = folder / "build.log"
        _say(f"the build's log is {log}")
        _run_build(python, Path(scratch), log)
        built = next(Path(scratch).glob("llama_cpp_python-*.whl"), None)
        if built is None:
            raise WheelError(f"the build made no wheel; see {log}")
        return built.rename(folder / built.name)


def _run_build(python: Path, scratch: Path, log: Path) -> None:
    """Run pip, its output to the log, one line on the terminal every SAY_EVERY_S seconds. Raises WheelError."""
    options = "-v --disable-pip-version-check --no-deps --no-build-isolation --no-cache-dir"
    command = [str(python), "-m", "pip", "wheel", *options.split(), "--require-hashes"]
    command += ["--no-binary", "llama-cpp-python", "-w", str(scratch), "-r", str(LLAMA_LOCK)]
    environment = _build_environment(scratch)
    with (
        log.open("w") as out,
        _Progress(out) as progress,
        _process_group(command, environment) as process,
    ):
        assert process.stdout is not None
        progress.follow(process.stdout)
        _wait_alive(process, progress)
    if process.returncode:
        raise WheelError(f"llama-cpp-python did not build; the reason stands at the end of {log}")


def _build_environment(scratch: Path) -> dict[str, str]:
    """The caller's environment, llama.cpp's `common` library switched off, scratch files beside the wheel."""
    ours = f"-DCMAKE_PROJECT_llama_cpp_INCLUDE={CMAKE_INCLUDE}"
    cmake_args = f"{os.environ.get('CMAKE_ARGS', '')} {ours}".strip()
    temporary = scratch / "tmp"
    temporary.mkdir()
    defaults = {"CMAKE_BUILD_PARALLEL_LEVEL": str(os.cpu_count() or 2)}
    return {**defaults, **os.environ, "CMAKE_ARGS": cmake_args, "TMPDIR": str(temporary)}


def _wait_alive(process: subprocess.Popen[str], progress: "_Progress") -> None:
    started = time.monotonic()
    while True:
        try:
            process.wait(timeout=SAY_EVERY_S)
            return
        except subprocess.TimeoutExpired:
            minutes, seconds = divmod(int(time.monotonic() - started), 60)
            _say(f"building llama.cpp, {minutes}:{seconds:02} min, {progress.last}")


class _Progress:
    """Copies the build's output to the log, in a thread, and keeps the last progress of Ninja or Make."""

    def __init__(self, log: IO[str]) -> None:
        self.last = "fetching and configuring"
        self._log = log
        self._thread: threading.Thread | None = None

    def __enter__(self) -> "_Progress":
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread:
            self._thread.join()

    def follow(self, source: IO[str]) -> None:
        """Read the source to its end in the background, then close it."""
        self._thread = threading.Thread(target=self._copy, args=(source,), daemon=True)
        self._thread.start()

    def _copy(self, source: IO[str]) -> None:
        with source:
            for line in source:
                self._log.write(line)
                self._log.flush()
                self._note(line)

    def _note(self, line: str) -> None:
        if found := PROGRESS.match(line):
            done, total, rest = found.groups()
            files = re.findall(r"[\w+-]+\.(?:c|cc|cpp|cxx|cu|m|mm)\b", rest)
            step = f"step {done} of {total}" if total else f"{done} %"
            self.last = f"{step}, {files[-1]}" if files else step


@contextmanager
def _process_group(
    command: list[str], environment: dict[str, str]
) -> Generator[subprocess.Popen[str]]:
    """Run a command in a group of its own, so that an abort ends its compilers too."""
    process = subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    previous = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()
        signal.signal(signal.SIGTERM, previous)


@contextmanager
def _one_build_at_a_time(folder: Path) -> Generator[None]:
    """Hold a lock on the cache folder; wait for a build of another checkout. Sweeps what aborted builds left."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say("another checkout is building llama.cpp; waiting for its wheel")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        for left_over in folder.glob("build-*/"):
            shutil.rmtree(left_over, ignore_errors=True)
        yield
    finally:
        os.close(descriptor)


def _say(line: str) -> None:
    print(f"setup: {line}", flush=True)


if __name__ == "__main__":
    print(cache_folder(cache_key()))
