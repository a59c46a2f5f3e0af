"""The flags of the log, applied to this process."""

import logging
import sys

from services import logs
from services.cli.errors import UsageError
from services.cli.flags import Values
from services.cli.values import get

_LEVELS = {0: logging.ERROR, 1: logging.ERROR, 2: logging.WARNING, 3: logging.INFO}
"""llama-server's verbosity; what is not here is DEBUG."""
SILENT = logging.CRITICAL + 1


def configure(service: str, values: Values) -> None:
    """Log as the flags say. Raises UsageError for a file that cannot be written."""
    try:
        logs.configure(
            service,
            level=level(values),
            is_json=get(values, "log_json", bool),
            file=get(values, "log_file", str),
            style=logs.Style(
                has_time=get(values, "log_timestamps", bool),
                has_prefix=get(values, "log_prefix", bool),
                has_colors=_has_colors(get(values, "log_colors", str)),
            ),
        )
    except OSError as error:
        raise UsageError(
            f"--log-file: cannot write {values['log_file']}: {error.strerror}"
        ) from None


def level(values: Values) -> int:
    """Of the standard library's."""
    if get(values, "log_disable", bool):
        return SILENT
    if get(values, "verbose", bool):
        return logging.DEBUG
    return _LEVELS.get(get(values, "log_verbosity", int), logging.DEBUG)


def _has_colors(wish: str) -> bool:
    return wish == "on" or (wish == "auto" and sys.stderr.isatty())
