"""The table of flags: one line each, for the parser, the help text and the children's environment.

Nearly all are llama-server's, under its names, aliases, variables and defaults; a flag for which it
has no variable gets one of ours, because children receive every flag through the environment.
"""

from services.cli.table.engine import ENGINE_FLAGS
from services.cli.table.http import HTTP_FLAGS
from services.cli.table.later import LATER_FLAGS
from services.cli.table.model import MODEL_FLAGS
from services.cli.table.process import PROCESS_FLAGS
from services.cli.table.row import (
    ARCHIVE,
    BUS,
    ENGINE,
    GATEWAY,
    LAUNCHER,
    MODEL,
    MODELS,
    SAMPLING,
    SECTIONS,
    Flag,
    Value,
    Values,
)
from services.cli.table.sampling import SAMPLING_FLAGS

__all__ = [
    "ACTIONS",
    "ARCHIVE",
    "BUS",
    "ENGINE",
    "FLAGS",
    "GATEWAY",
    "LAUNCHER",
    "MODEL",
    "MODELS",
    "SAMPLING",
    "SECTIONS",
    "Flag",
    "Value",
    "Values",
]

FLAGS: tuple[Flag, ...] = (
    *MODEL_FLAGS,
    *ENGINE_FLAGS,
    *SAMPLING_FLAGS,
    *HTTP_FLAGS,
    *PROCESS_FLAGS,
    *LATER_FLAGS,
)

ACTIONS = {
    "help": ("-h", "--help", "--usage"),
    "version": ("--version",),
    "cache-list": ("-cl", "--cache-list"),
    "list-devices": ("--list-devices",),
    "completion-bash": ("--completion-bash",),
}
"""Flags that print something and end the process, whatever else is on the line."""
