"""Commands with words of their own (`keys`, `audit`): what their arguments have in common."""

import argparse
import os
from collections.abc import Mapping
from typing import NoReturn, Protocol

from services.cli.errors import UsageError
from services.cli.flags import Values
from services.cli.parse import defaults, parse_environment

SHARED = ("data_dir", "database_url", "broker_url", "broker_token")
"""Options that mean what the flags of the same name mean, where a command has them."""


class Commands(Protocol):
    """What argparse keeps commands in."""

    def add_parser(self, name: str, *, help: str) -> argparse.ArgumentParser: ...  # noqa: A002


class WordParser(argparse.ArgumentParser):
    """Complains in one line, as every other command does."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog}: {message}")


def add_command(commands: Commands, name: str, what: str) -> argparse.ArgumentParser:
    """A command that works on the database."""
    parser = commands.add_parser(name, help=what)
    parser.add_argument("--data-dir", default="", metavar="DIR", help="of the server")
    parser.add_argument("--database-url", default="", metavar="URL", help="where there is another")
    return parser


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="one JSON object a line")


def values_of(options: argparse.Namespace, environment: Mapping[str, str] | None = None) -> Values:
    """What the other commands' flags and variables say; options win, and a data directory that is
    named means the database in it. Raises UsageError."""
    given: Values = {name: text for name in SHARED if (text := getattr(options, name, ""))}
    if "data_dir" in given:
        given.setdefault("database_url", "")
    found = parse_environment(os.environ if environment is None else environment)
    return defaults() | found | given
