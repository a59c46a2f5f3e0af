"""Arguments of `llamatape keys`. Pure, but for the help that it prints."""

import argparse
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from schemas.keys import CONTENTS, SCOPES, USUAL_SCOPES, KeyLimits, KeyRecord
from services.cli import settings
from services.cli.errors import UsageError
from services.cli.words import Commands, WordParser, add_command, add_json, values_of

UNIT_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
MAX_AGE_MS = 100 * 365 * UNIT_MS["d"]
ABOUT = "API keys in the database. Once there is one, nobody may ask without a key."


def parse(words: Sequence[str]) -> argparse.Namespace:
    """The command and its options. Raises UsageError; prints help and exits where that is asked for."""
    return _parser().parse_args(words)


def database_url(options: argparse.Namespace, environment: Mapping[str, str] | None = None) -> str:
    """The database that is meant; one that is named wins over variables."""
    return settings.database_url(values_of(options, environment))


def wanted(options: argparse.Namespace, now_ms: int) -> KeyRecord:
    """What `create` asks for, without id and digest. Raises UsageError."""
    return KeyRecord(
        id="",
        digest="",
        name=options.name,
        scopes=tuple(dict.fromkeys(options.scopes or USUAL_SCOPES)),
        models=tuple(dict.fromkeys(options.models or ())),
        limits=KeyLimits(
            requests_per_minute=options.requests_per_minute,
            tokens_per_minute=options.tokens_per_minute,
            concurrent=options.concurrent,
        ),
        content=options.content,
        expires_at_ms=expires_at_ms(options.expires, now_ms) if options.expires else 0,
    )


def expires_at_ms(text: str, now_ms: int) -> int:
    """`30d` from now, or a time as ISO 8601 has it (UTC where it names no zone), in Unix milliseconds.
    Raises UsageError."""
    if found := re.fullmatch(r"([0-9]{1,9})([smhdw])", text, re.ASCII):
        age_ms = int(found[1]) * UNIT_MS[found[2]]
        if age_ms <= MAX_AGE_MS:
            return now_ms + age_ms
    else:
        try:
            at = datetime.fromisoformat(text)
            return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)
        except (ValueError, OverflowError):
            pass
    raise UsageError(
        f"--expires: {text!r} is neither a time like 2027-01-31 nor one like 12h or 30d"
    )


def _parser() -> argparse.ArgumentParser:
    parser = WordParser(prog="llamatape keys", description=ABOUT, allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    _add_create(commands)
    _command(commands, "list", "all keys, revoked and expired ones too")
    revoke = _command(commands, "revoke", "let a key open nothing any more; within seconds")
    revoke.add_argument("key", metavar="ID_OR_NAME")
    return parser


def _command(commands: Commands, name: str, what: str) -> argparse.ArgumentParser:
    parser = add_command(commands, name, what)
    add_json(parser)
    return parser


def _add_create(commands: Commands) -> None:
    parser = _command(commands, "create", "make a key; it is shown once")
    add = parser.add_argument
    add("name", metavar="NAME", help="for people")
    usual = ", ".join(USUAL_SCOPES)
    add("--scope", dest="scopes", action="append", choices=SCOPES, help=f"default: {usual}")
    add("--model", dest="models", action="append", metavar="NAME", help="default: all models")
    for name, what in (
        ("requests-per-minute", "default: no limit"),
        ("tokens-per-minute", "of prompts and answers"),
        ("concurrent", "generations at once, the waiting ones too"),
    ):
        add(f"--{name}", type=int, default=0, metavar="N", help=what)
    add("--content", default="", choices=CONTENTS, help="what is kept (default: --record-content)")
    add("--expires", default="", metavar="TIME", help="as 2027-01-31, or 12h or 30d from now")
