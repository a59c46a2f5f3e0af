"""Small parts: backoff, exits, logs, help, the banner, what children are given."""

import io
import json
import logging
from pathlib import Path

import pytest

from schemas.rpc import StartEngine
from services import logs
from services.cli import log_setup, serve
from services.cli.errors import UsageError
from services.cli.flags import FLAGS
from services.cli.help import text
from services.cli.parse import parse
from services.cli.programs import Programs
from services.cli.supervisor import BoundedLog, Exit, next_delay


def test_the_delay_doubles_up_to_five_seconds_and_falls_back_after_a_long_life() -> None:
    delays, delay = [], 0.0
    for _ in range(7):
        delay = next_delay(delay, life_s=0.1)
        delays.append(delay)
    assert delays == [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    assert next_delay(5.0, life_s=30.0) == 0.2


@pytest.mark.parametrize(
    ("tail", "reason"),
    [
        (("noise", "error: no memory", "more noise", ""), "no memory"),
        (("noise", "last words", ""), "last words"),
        (
            ("12:00:00.000 ERROR engine action=refused error=no such tensor: x",),
            "no such tensor: x",
        ),
        (('12:00:00.000 ERROR engine action=refused error="a b"',), "a b"),
        (('{"level": "ERROR", "message": "action=refused error=a b"}',), "a b"),
        ((), "exit code 3"),
    ],
)
def test_the_reason_of_an_exit(tail: tuple[str, ...], reason: str) -> None:
    assert Exit(name="engine", code=3, n=1, tail=tail).reason == reason


def test_a_log_file_is_bounded(tmp_path: Path) -> None:
    log = BoundedLog(tmp_path / "x.log", max_bytes=100)
    for number in range(100):
        log.write(f"line {number:04}\n".encode())
    log.close()
    both = [(tmp_path / name).read_text() for name in ("x.log.1", "x.log")]
    assert sum(map(len, both)) <= 220
    assert "".join(both).endswith("line 0099\n")


@pytest.fixture
def root_logger() -> object:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    yield
    root.handlers[:], level = before[0], before[1]
    root.setLevel(level)


@pytest.mark.usefixtures("root_logger")
def test_log_lines() -> None:
    stream = io.StringIO()
    logs.configure("api", stream=stream)
    logger = logging.getLogger("services.x")
    logs.event(logger, "started", pid=3, path="a b", nothing=None, quote='"')
    logger.info("action=plain n=%d", 1)
    logger.warning("two\nlines")
    lines = stream.getvalue().splitlines()
    assert [line.split(" ", 1)[1] for line in lines] == [
        r'INFO api action=started pid=3 path="a b" quote="\""',
        "INFO api action=plain n=1",
        r'WARNING api message="two\nlines"',
    ]


def test_with_the_log_switched_off_children_are_heard_by_the_launcher_only() -> None:
    made = programs("--log-disable", "-v", "--log-file", "x").api([5])
    assert not made.is_shown
    assert not {"LLAMATAPE_LOG_DISABLE", "LLAMA_ARG_LOG_FILE"} & made.env.keys()


@pytest.mark.usefixtures("root_logger")
@pytest.mark.parametrize(
    ("flags", "line"),
    [
        ("--no-log-timestamps", "WARNING api action=x"),
        ("--no-log-timestamps --no-log-prefix", "action=x"),
        ("--no-log-timestamps --log-colors on", "\033[33mWARNING\033[0m api action=x"),
        ("--log-disable", ""),
        ("-lv 1", ""),
    ],
)
def test_flags_of_the_log(flags: str, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    log_setup.configure("api", parse(flags.split(), {}))
    logs.event(logging.getLogger("services.x"), "x", level=logging.WARNING)
    assert capsys.readouterr().err == (f"{line}\n" if line else "")


@pytest.mark.parametrize(
    ("flags", "level"),
    [
        ("", logging.INFO),
        ("-lv 0", logging.ERROR),
        ("-lv 2", logging.WARNING),
        ("-lv 4", logging.DEBUG),
        ("-v", logging.DEBUG),
        ("-v --log-disable", log_setup.SILENT),
    ],
)
def test_levels_of_the_log(flags: str, level: int) -> None:
    assert log_setup.level(parse(flags.split(), {})) == level


@pytest.mark.usefixtures("root_logger")
def test_a_log_file_gets_every_line_without_colours(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "log"
    flags = ["--log-file", str(path), "--log-colors", "on", "--no-log-timestamps"]
    log_setup.configure("api", parse(flags, {}))
    logs.event(logging.getLogger("services.x"), "x", level=logging.ERROR)
    logging.getLogger().handlers[1].close()
    assert path.read_text() == "ERROR api action=x\n"
    assert "\033[31mERROR" in capsys.readouterr().err


def test_a_log_file_that_cannot_be_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"^--log-file: cannot write {tmp_path}: Is a directory$"):
        log_setup.configure("api", parse(["--log-file", str(tmp_path)], {}))


@pytest.mark.usefixtures("root_logger")
def test_json_log_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(logs.JSON_VARIABLE, "1")
    stream = io.StringIO()
    logs.configure("api", stream=stream)
    try:
        raise ValueError("broken")
    except ValueError:
        logging.getLogger("services.x").exception("it broke")
    logs.event(logging.getLogger("services.x"), "started", pid=3)
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert (first["level"], first["message"]) == ("ERROR", "it broke")
    assert "ValueError: broken" in first["trace"]
    assert (second["action"], second["pid"], second["service"]) == ("started", 3, "api")


def test_help_names_every_flag_and_shows_no_secret() -> None:
    shown = text()
    for flag in FLAGS:
        assert f"[{flag.env}]" in " ".join(shown.split())
        assert all(name in shown for name in flag.names + flag.negatives)
    assert max(map(len, shown.splitlines())) <= 100


def test_the_banner_shows_a_curl_without_the_key() -> None:
    values = parse(["-m", "x.gguf", "--api-key", "sesame"], {})
    shown = serve.banner(values, "http://127.0.0.1:8080")
    assert "curl http://127.0.0.1:8080/v1/chat/completions -H 'Authorization: Bearer " in shown
    assert "sesame" not in shown
    assert "--unix-socket /x.sock http://localhost/" in serve.banner(values, "unix:/x.sock")


def programs(*arguments: str) -> Programs:
    values = parse(["-m", "x.gguf", *arguments], {})
    return Programs(values=values, logs_dir=Path("/logs"), lifeline_fd=9, python=("python",))


def test_children_get_flags_as_variables_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLAMA_ARG_PORT", "1")
    monkeypatch.setenv("LLAMA_ARG_NO_JINJA", "1")
    monkeypatch.setenv("OTHER", "kept")
    program = programs("--api-key", "sesame").api([5, 6])
    assert program.command == ("python", "api")
    assert program.pass_fds == (9, 5, 6)
    assert program.env["LLAMA_API_KEY"] == "sesame"
    assert program.env["LLAMATAPE_LISTEN_FDS"] == "5,6"
    assert program.env["OTHER"] == "kept"
    assert not {"LLAMA_ARG_PORT", "LLAMA_ARG_NO_JINJA"} & program.env.keys()
    assert "sesame" not in repr(program)


def test_an_order_sets_flags_only() -> None:
    env = {"LLAMA_ARG_MODEL": "y.gguf", "LD_PRELOAD": "evil.so"}
    order = StartEngine(model_key="k", engine="../e", env=env)
    program = programs("--api-key", "sesame", "--broker-token", "t").engine(order)
    assert program.env["LLAMA_ARG_MODEL"] == "y.gguf"
    assert program.env["LLAMATAPE_ENGINE_ID"] == "../e"
    assert program.env["LLAMATAPE_NATS_TOKEN"] == "t"
    assert not {"LD_PRELOAD", "LLAMA_API_KEY"} & program.env.keys()
    assert program.log_file == Path("/logs/engine-e.log")
