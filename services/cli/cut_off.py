"""What uvicorn says of answers that end early: a trace for each, though nothing is wrong with them."""

import asyncio
import logging

from schemas.errors import LlamatapeError

LOGGER = "uvicorn.error"


class CutOff(logging.Filter):
    """An answer whose log broke off, or whose reader stops, is one line without a trace.

    Raising is the only way to end a connection so that no client takes the answer for complete.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, LlamatapeError):
            record.levelno, record.levelname = logging.WARNING, "WARNING"
            record.msg, record.args = "action=answer_cut_off error=%r", (error,)
            record.exc_info = None
        return True


class Interrupted(logging.Filter):
    """Hides that answers were cut off by our own end: it is no failure of theirs."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        is_ours = isinstance(error, asyncio.CancelledError | LlamatapeError)
        return not is_ours and not record.getMessage().startswith("Cancel ")
