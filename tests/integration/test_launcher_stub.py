"""The launcher with stand-ins for the services and the real nats-server: order, ends, restarts, nothing left."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.processes import Session, wait_gone

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "tests" / "models" / "stories-tiny.gguf"
STUB = Path(__file__).with_name("launcher_stub.py")
PATHS = {"PYTHONPATH": str(ROOT)}

Start = Callable[..., Session]


def command(data: Path, *flags: str) -> list[str]:
    head = [sys.executable, str(STUB), "serve", "-m", str(MODEL), "--data-dir", str(data)]
    return [*head, "--port", "0", *flags]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    sessions: list[Session] = []

    def begin(*flags: str, data: Path | None = None, **env: str) -> Session:
        line = command(data or tmp_path / "data", *flags)
        sessions.append(Session(line, folder=tmp_path, env=PATHS | env))
        return sessions[-1]

    yield begin
    for session in sessions:
        session.__exit__()


def url_of(session: Session) -> str:
    text = session.wait_for("Try:")
    found = re.search(r" at (http://\S+)", text)
    assert found, text
    return found[1]


def failure(*arguments: str, **env: str) -> tuple[int, str]:
    """Exit code and stderr of a start that fails."""
    line = [sys.executable, "-m", "services.cli", *arguments]
    done = subprocess.run(
        line,
        cwd=ROOT,
        env=os.environ | env,
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert done.stdout == ""
    return done.returncode, done.stderr


def test_everything_starts_and_sigterm_leaves_nothing(start: Start) -> None:
    session = start()
    assert httpx.get(f"{url_of(session)}/health").status_code == 200
    for name in ("nats-server", "api", "engine"):
        assert session.one(name)
    began = time.monotonic()
    assert session.stop() == 0
    assert time.monotonic() - began < 5
    assert session.members() == {}
    stops = re.findall(r"action=stopped program=\"?(\w+)", session.stderr)
    assert stops == ["engine", "api", "broker"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_other_signals_end_it_too(start: Start, number: signal.Signals) -> None:
    session = start()
    url_of(session)
    assert session.stop(number) == 0
    assert session.members() == {}


@pytest.mark.parametrize("program", ["broker", "api"])
def test_a_stop_in_the_middle_of_the_start(start: Start, program: str) -> None:
    session = start()
    _wait_for_log(session, rf"action=started program={program} ")
    assert session.stop() == 0
    assert session.members() == {}
    assert "error" not in session.stderr


def test_a_deaf_engine_is_killed_within_the_time(start: Start) -> None:
    session = start(STUB_ENGINE="deaf")
    url_of(session)
    began = time.monotonic()
    assert session.stop() == 0
    assert time.monotonic() - began < 5
    assert session.members() == {}


def test_a_second_signal_kills(start: Start) -> None:
    session = start(STUB_ENGINE="deaf")
    url_of(session)
    engine, began = session.one("engine"), time.monotonic()
    session.process.send_signal(signal.SIGTERM)
    assert not wait_gone(engine, 0.7), "a deaf engine went away by itself"
    assert session.stop() == 0
    assert time.monotonic() - began < 2
    assert session.members() == {}


def test_children_notice_a_killed_launcher(start: Start) -> None:
    session = start(STUB_ENGINE="deaf")
    url_of(session)
    assert len(session.members()) == 3
    session.process.kill()
    session.process.wait()
    assert session.wait_until_alone(3.0) == {}


def test_a_start_right_after_a_kill_waits_for_the_children(start: Start) -> None:
    session = start(STUB_ENGINE="deaf")
    port = url_of(session).rpartition(":")[2]
    session.process.kill()
    session.process.wait()
    again = start("--port", port)
    assert url_of(again).endswith(port)
    assert again.stop() == 0


def test_a_killed_api_process_comes_back_on_the_same_port(start: Start) -> None:
    session = start()
    url, before = url_of(session), session.one("api")
    os.kill(before, signal.SIGKILL)
    # The launcher holds the socket: the request waits for the new process instead of being refused.
    assert httpx.get(f"{url}/health", timeout=10).status_code == 200
    assert session.one("api") != before
    assert session.stop() == 0


@pytest.mark.parametrize("name", ["engine", "nats-server"])
def test_a_killed_child_comes_back(start: Start, name: str, tmp_path: Path) -> None:
    session = start()
    url_of(session)
    before = session.one(name)
    os.kill(before, signal.SIGKILL)
    assert wait_gone(before, 2)
    after = _other(session, name, before)
    assert after != before
    assert session.stop() == 0
    assert session.members() == {}


def _other(session: Session, name: str, before: int) -> int:
    """Wait on the launcher's log for the restart, then name the new process."""
    program = {"nats-server": "broker"}.get(name, '"engine e0"')
    found = _wait_for_log(session, rf"action=started program={program} pid=(\d+)", n=2)
    assert found[0] == str(before)
    return int(found[1])


def _wait_for_log(session: Session, pattern: str, n: int = 1) -> list[str]:
    """What `pattern` finds in the launcher's log, once it finds it `n` times."""
    deadline = time.monotonic() + 10
    while len(found := re.findall(pattern, session.stderr)) < n:
        assert time.monotonic() < deadline, session.stderr
        assert not wait_gone(session.process.pid, 0.02), session.stderr
    return found


def test_a_model_that_cannot_be_loaded_ends_the_start_with_one_line(start: Start) -> None:
    session = start(STUB_ENGINE="refuse")
    assert session.process.wait(10) == 1
    assert session.stderr.rstrip().splitlines()[-1] == "error: the model says no"
    assert "Traceback" not in session.stderr
    assert session.members() == {}


def test_an_engine_that_crashes_over_and_over_ends_the_start(start: Start) -> None:
    session = start(STUB_ENGINE="crash")
    assert session.process.wait(20) == 1
    last = session.stderr.rstrip().splitlines()[-1]
    assert last == "error: engine e0 does not start: the engine broke"
    assert session.members() == {}


def test_two_launchers_on_one_data_directory(start: Start, tmp_path: Path) -> None:
    session = start()
    url_of(session)
    code, text = failure(*command(tmp_path / "data")[2:])
    assert code == 1
    assert re.fullmatch(
        rf"error: data directory \S+ is used by another launcher \(process {session.process.pid}\).*\n",
        text,
    )


def test_the_broker_is_not_open_and_its_secret_not_in_ps(start: Start, tmp_path: Path) -> None:
    session = start(LLAMA_API_KEY="sesame-key")
    url_of(session)
    config = tmp_path / "data" / "broker" / "nats.conf"
    assert config.stat().st_mode & 0o077 == 0
    found = re.search(r'token: "(\w+)"', config.read_text())
    assert found
    lines = " ".join(session.members().values())
    assert found[1] not in lines
    assert "sesame-key" not in lines + session.stderr


def test_port_taken(start: Start, tmp_path: Path) -> None:
    session = start()
    port = url_of(session).rpartition(":")[2]
    arguments = command(tmp_path / "other", "--port", port)[2:]
    code, text = failure(*arguments)
    assert (code, text) == (
        1,
        f"error: 127.0.0.1:{port} is taken by another process: choose another with --port\n",
    )


def test_bad_starts_are_one_line(tmp_path: Path) -> None:
    text_file = tmp_path / "text.gguf"
    text_file.write_text("not a model")
    serve = ["serve", "--port", "0"]
    data = ["--data-dir", str(text_file / "below")]
    cases = [
        (["engine"], "no model: name a GGUF file with -m FILE"),
        ([*serve, "-m", "/nowhere.gguf"], "model /nowhere.gguf cannot be read: No such file"),
        ([*serve, "-m", str(tmp_path)], f"model {tmp_path} is not a file"),
        ([*serve, "-m", str(text_file)], f"model {text_file} is not a GGUF file"),
        (
            [*serve, "-m", str(MODEL), *data],
            f"data directory {text_file}/below cannot be used: Not",
        ),
        ([*serve, "--paralel", "1"], "invalid argument: --paralel (did you mean --parallel?)"),
        ([*serve, "--port", "x"], "--port: 'x' is not a whole number"),
    ]
    for arguments, message in cases:
        code, text = failure(*arguments)
        assert code == 1
        assert text.startswith(f"error: {message}"), text
        assert text.count("\n") == 1


def test_a_missing_broker_is_one_line(tmp_path: Path) -> None:
    hide = "import importlib.metadata as m; m.files = lambda name: None; "
    run = f"{hide}from services.cli.main import main; main(['serve', '-m', {str(MODEL)!r}])"
    done = subprocess.run(
        [sys.executable, "-c", run],
        cwd=ROOT,
        env=os.environ | {"PATH": "", "LLAMATAPE_DATA_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("error: no nats-server: install")
    assert done.stderr.count("\n") == 1
