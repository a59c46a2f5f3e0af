"""Logs of every process: one structured line each on stderr, `action=… key=value`, or JSON.

Any module may use the standard library (`logging.getLogger(__name__).info("action=…")`); `event`
writes the pairs for it. `configure` is called once per process, by its entry point.
"""

import json
import logging
import os
import sys
import time
from typing import TextIO

JSON_VARIABLE = "LLAMATAPE_LOG_JSON"
_FIELDS = "llamatape_fields"
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


class LineFormatter(logging.Formatter):
    """`12:00:00.123 INFO api action=…`; what is not structured becomes `message="…"`."""

    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service

    def format(self, record: logging.LogRecord) -> str:
        at = time.strftime("%H:%M:%S", time.localtime(record.created))
        head = f"{at}.{int(record.msecs):03} {record.levelname} {self._service}"
        text = record.getMessage()
        is_structured = text.startswith("action=") and "\n" not in text
        return f"{head} {text if is_structured else _pairs({'message': text})}{self._trace(record)}"

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
) -> None:
    """Log everything of this process, from INFO (DEBUG if verbose), under `service`.

    is_json: one JSON object a line; LLAMATAPE_LOG_JSON asks for that too.
    """
    is_json = is_json or os.environ.get(JSON_VARIABLE, "") in ("1", "on", "true", "enabled")
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter((JsonFormatter if is_json else LineFormatter)(service))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.DEBUG if is_verbose else logging.INFO)
    for noisy in ("asyncio", "nats", "aiosqlite", "sqlalchemy", "alembic", "uvicorn"):
        logging.getLogger(noisy).setLevel(logging.INFO if is_verbose else logging.WARNING)
