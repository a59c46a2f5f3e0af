"""Entry points: `llamatape [command] [flag …]` and `llamatape-server [flag …]`.

Each command imports only what it runs, so that `--help` is quick and children are small.
"""

import os
import sys
from collections.abc import Callable

from schemas.errors import LlamatapeError
from services.cli import actions
from services.cli.errors import CliError, UsageError
from services.cli.flags import Values
from services.cli.parse import action_of, parse

DECODER = "decoder"
"""Hidden command: `decoder <fd>`, started by an engine front, takes no flags."""


def main(arguments: list[str] | None = None) -> None:
    """Console script. Ends the process: 0, or 1 after one line on stderr."""
    words = sys.argv[1:] if arguments is None else arguments
    sys.exit(_guarded(words))


def server_main() -> None:
    """Console script `llamatape-server`: `serve` with llama-server's command line."""
    sys.exit(_guarded(["serve", *sys.argv[1:]]))


def _guarded(words: list[str]) -> int:
    try:
        return _dispatch(words)
    except CliError as error:
        return _complain(error, error.exit_code)
    except LlamatapeError as error:
        return _complain(error, 1)
    except KeyboardInterrupt:
        return 130


def _complain(error: Exception, exit_code: int) -> int:
    print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
    return exit_code


def _dispatch(words: list[str]) -> int:
    command, flags = _split(words)
    if command == DECODER:
        return _decoder(flags)
    if tool := _TOOLS.get(command):
        return tool(flags)
    action = "version" if command == "version" else action_of(flags)
    return actions.run(action) if action else _run(command)(parse(flags, os.environ))


def _split(words: list[str]) -> tuple[str, list[str]]:
    """The command, `serve` where none is named, and the flags."""
    if words and not words[0].startswith("-"):
        return words[0], words[1:]
    return "serve", words


def _run(command: str) -> Callable[[Values], int]:
    runners: dict[str, Callable[[Values], int]] = {
        "serve": _serve,
        "engine": _engine,
        "api": _service("api"),
        "gateway": _service("gateway"),
        "streams": _service("streams"),
        "models": _service("models"),
        "migrate": _migrate,
    }
    if command not in runners:
        names = ", ".join([*runners, *_TOOLS, "version"])
        raise UsageError(f"no such command: {command} (there are {names})")
    return runners[command]


def _serve(values: Values) -> int:
    from services.cli.serve import serve

    return serve(values)


def _engine(values: Values) -> int:
    from services.cli.engine import run

    return run(values)


def _service(name: str) -> Callable[[Values], int]:
    def run(values: Values) -> int:
        from services.cli import api

        return api.run(name, values)

    return run


def _migrate(values: Values) -> int:
    from services.cli.migrate import run

    return run(values)


def _keys(words: list[str]) -> int:
    from services.cli.keys.run import run

    return run(words)


def _audit(words: list[str]) -> int:
    from services.cli.audit.run import run

    return run(words)


_TOOLS: dict[str, Callable[[list[str]], int]] = {"keys": _keys, "audit": _audit}
"""Commands with words of their own instead of flags."""


def _decoder(words: list[str]) -> int:
    from services import logs

    logs.configure(DECODER)
    from services.engine.decoder.main import run_decoder

    return run_decoder(int(words[0]))
