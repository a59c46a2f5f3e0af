"""Logs of every process: one structured line each on stderr, `action=… key=value`, or JSON.

Any module may use the standard library (`logging.getLogger(__name__).info("action=…")`); `event`
writes the pairs for it. `configure` is called once per process, by its entry point.
"""

import json
import logging
import os
import sys
import time
from dataclasses import dataclass, replace
from typing import TextIO

JSON_VARIABLE = "LLAMATAPE_LOG_JSON"
_FIELDS = "llamatape_fields"
_COLORS = {logging.DEBUG: "2", logging.WARNING: "33", logging.ERROR: "31"}
_NEEDS_QUOTES = frozenset(' "=\n\r\t')


def event(
    logger: logging.Logger, action: str, *, level: int = logging.INFO, **fields: object
) -> None:
    """Log that `action` happened. fields: ids and numbers; None is left out. Any thread."""
    if logger.isEnabledFor(level):
        pairs = {"action": action} | {k: v for k, v in fields.items() if v is not None}
        logger.log(level, _pairs(pairs), extra={_FIELDS: pairs})


def _pairs(fields: dict[str, object]) -> str:
    return " ".join(f"{key}={_quoted(str(value))}" for key, value in fields.items())


def _quoted(text: str) -> str:
    is_plain = bool(text) and _NEEDS_QUOTES.isdisjoint(text)
    return text if is_plain else json.dumps(text, ensure_ascii=False)


@dataclass(frozen=True, kw_only=True)
class Style:
    """What a line begins with, and whether its level has a colour."""

    has_time: bool = True
    has_prefix: bool = True
    has_colors: bool = False


class LineFormatter(logging.Formatter):
    """`12:00:00.123 INFO api action=…`; what is not structured becomes `message="…"`."""

    def __init__(self, service: str, style: Style) -> None:
        super().__init__()
        self._service = service
        self._look = style

    def format(self, record: logging.LogRecord) -> str:
        text = record.getMessage()
        is_structured = text.startswith("action=") and "\n" not in text
        body = text if is_structured else _pairs({"message": text})
        return f"{self._head(record)}{body}{self._trace(record)}"

    def _head(self, record: logging.LogRecord) -> str:
        head = ""
        if self._look.has_time:
            at = time.strftime("%H:%M:%S", time.localtime(record.created))
            head = f"{at}.{int(record.msecs):03} "
        if self._look.has_prefix:
            head += f"{self._level(record)} {self._service} "
        return head

    def _level(self, record: logging.LogRecord) -> str:
        color = _COLORS.get(record.levelno, "") if self._look.has_colors else ""
        return f"\033[{color}m{record.levelname}\033[0m" if color else record.levelname

    def _trace(self, record: logging.LogRecord) -> str:
        if not record.exc_info:
            return ""
        return f" trace={_quoted(self.formatException(record.exc_info))}"


class JsonFormatter(LineFormatter):
    """One JSON object a line: at (Unix seconds), level, service, logger and the fields."""

    def format(self, record: logging.LogRecord) -> str:
        fields = getattr(record, _FIELDS, None) or {"message": record.getMessage()}
        line = {"at": round(record.created, 3), "level": record.levelname, "service": self._service}
        line |= {"logger": record.name, **fields}
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


def configure(
    service: str,
    *,
    is_verbose: bool = False,
    is_json: bool = False,
    stream: TextIO | None = None,
    level: int | None = None,
    file: str = "",
    style: Style | None = None,
) -> None:
    """Log everything of this process, from INFO (DEBUG if verbose), under `service`.

    is_json: one JSON object a line; LLAMATAPE_LOG_JSON asks for that too. level: instead of
    is_verbose. file: appended to as well. Raises OSError where it cannot be opened.
    """
    is_json = is_json or os.environ.get(JSON_VARIABLE, "") in ("1", "on", "true", "enabled")
    formatter_class, style = JsonFormatter if is_json else LineFormatter, style or Style()
    shown = logging.StreamHandler(stream or sys.stderr)
    shown.setFormatter(formatter_class(service, style))
    handlers: list[logging.Handler] = [shown]
    if file:
        kept = logging.FileHandler(file, encoding="utf-8")
        kept.setFormatter(formatter_class(service, replace(style, has_colors=False)))
        handlers.append(kept)
    _install(handlers, level or (logging.DEBUG if is_verbose else logging.INFO))


def _install(handlers: list[logging.Handler], level: int) -> None:
    root = logging.getLogger()
    root.handlers[:] = handlers
    root.setLevel(level)
    quiet = max(level, logging.INFO if level <= logging.DEBUG else logging.WARNING)
    for noisy in ("asyncio", "nats", "aiosqlite", "sqlalchemy", "alembic", "uvicorn"):
        logging.getLogger(noisy).setLevel(quiet)
