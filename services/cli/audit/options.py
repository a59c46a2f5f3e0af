"""Arguments of `llamatape audit`."""

import argparse
from collections.abc import Mapping, Sequence

from services.cli import settings
from services.cli.words import Commands, WordParser, add_command, add_json, values_of
from services.streams.audit.filters import OUTCOMES
from services.streams.audit.rendering import CLIENT, DIALECTS

FILTERS = ("caller", "model", "outcome", "dialect", "id", "from", "to")


def parse(words: Sequence[str], environment: Mapping[str, str] | None = None) -> argparse.Namespace:
    """The command and its options; `values` holds what the other commands' flags and variables say.

    Raises UsageError; prints help and exits where that is asked for.
    """
    options = _parser().parse_args(words)
    options.values = values_of(options, environment)
    return options


def filters(options: argparse.Namespace) -> dict[str, str]:
    """The filters under the names of the HTTP API."""
    found = {name: getattr(options, f"filter_{name}") for name in FILTERS}
    return {name: text for name, text in found.items() if text}


def database_url(options: argparse.Namespace) -> str:
    """The database that is meant."""
    return settings.database_url(options.values)


def _parser() -> argparse.ArgumentParser:
    parser = WordParser(prog="llamatape audit", description=__doc__, allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    _add_list(commands)
    _add_show(commands)
    _add_replay(commands)
    _add_export(commands)
    _add_verify(commands)
    _add_erase(commands)
    return parser


def _add_filters(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--caller", dest="filter_caller", default="", metavar="KEY_ID", help="who asked")
    add("--model", dest="filter_model", default="", metavar="NAME", help="which model")
    add("--outcome", dest="filter_outcome", default="", choices=OUTCOMES, help="how it ended")
    add("--dialect", dest="filter_dialect", default="", help="as openai.chat")
    add("--id", dest="filter_id", default="", metavar="PREFIX", help="how the id begins")
    add("--from", dest="filter_from", default="", metavar="TIME", help="created then or later")
    add("--to", dest="filter_to", default="", metavar="TIME", help="created before; all of a day")


def _add_list(commands: Commands) -> None:
    parser = add_command(commands, "list", "archived generations, newest first")
    _add_filters(parser)
    parser.add_argument("--limit", type=int, default=50, metavar="N", help="0 for all")
    parser.add_argument("--after", default="", metavar="CURSOR", help="the next page")
    add_json(parser)


def _add_show(commands: Commands) -> None:
    parser = add_command(commands, "show", "all facts of one")
    parser.add_argument("id", help="of a generation, or of an answer")
    parser.add_argument("--events", action="store_true", help="its log, one JSON object a line")
    add_json(parser)


def _add_replay(commands: Commands) -> None:
    parser = add_command(commands, "replay", "type an answer out at its recorded pace")
    parser.add_argument("id", help="of a generation, or of an answer")
    parser.add_argument("--speed", type=float, default=1.0, metavar="X", help="0 for at once")
    parser.add_argument("--choice", type=int, default=0, metavar="N", help="of several answers")
    what = f"the exact bytes instead; {CLIENT}: as it was asked for"
    parser.add_argument("--as", dest="dialect", default="", choices=DIALECTS, help=what)


def _add_export(commands: Commands) -> None:
    parser = add_command(commands, "export", "facts of many, into a file")
    _add_filters(parser)
    parser.add_argument("--format", default="jsonl", choices=("jsonl", "parquet"))
    parser.add_argument("--output", "-o", default="-", metavar="FILE", help="- for the terminal")
    parser.add_argument("--events", action="store_true", help="logs, too (jsonl)")


def _add_verify(commands: Commands) -> None:
    parser = add_command(commands, "verify", "compute digests and chain anew, name every break")
    parser.add_argument("--id", default="", help="one generation only")
    parser.add_argument("--from", dest="first_day", default="", metavar="DAY")
    parser.add_argument("--to", dest="last_day", default="", metavar="DAY")
    parser.add_argument(
        "--expect-head", default="", metavar="HEAD", help="a head that was printed earlier"
    )
    add_json(parser)


def _add_erase(commands: Commands) -> None:
    parser = add_command(commands, "erase", "remove what was said; a tombstone stays")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--id", default="", help="of a generation, or of an answer")
    which.add_argument("--caller", default="", metavar="KEY_ID", help="all that it asked")
    parser.add_argument(
        "--nats-url", dest="broker_url", default="", metavar="URL", help="of the hot logs"
    )
    parser.add_argument("--broker-token", default="", metavar="TOKEN")
