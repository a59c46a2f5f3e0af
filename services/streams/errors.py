"""Errors of the read side.

StreamsError(LlamatapeError)
├── UnknownProjection   no projection renders that dialect in that version
├── StreamNotFound      there is no log: nobody asked for that generation, or it is kept no more
├── StreamGone          the generation is known, but what it said is not kept any more
└── StreamBroken        the log holds what this build cannot render; readers stop there
"""

from schemas.errors import LlamatapeError


class StreamsError(LlamatapeError):
    """Base of the read side's errors."""


class UnknownProjection(StreamsError):
    """No projection renders that dialect in that version: a newer build wrote the log."""


class StreamNotFound(StreamsError):
    """The log is empty."""


class StreamGone(StreamsError):
    """What the generation said is not kept any more; the message says why. caller: whose it was."""

    def __init__(self, message: str, caller: str) -> None:
        super().__init__(message)
        self.caller = caller


class StreamBroken(StreamsError):
    """The log holds what this build cannot render."""
