"""Errors of the read side.

StreamsError(LlamatapeError)
├── UnknownProjection   no projection renders that dialect in that version
├── StreamNotFound      the log is empty: nobody asked for that generation, or it was purged
└── StreamBroken        the log holds what this build cannot render; readers stop there
"""

from schemas.errors import LlamatapeError


class StreamsError(LlamatapeError):
    """Base of the read side's errors."""


class UnknownProjection(StreamsError):
    """No projection renders that dialect in that version: a newer build wrote the log."""


class StreamNotFound(StreamsError):
    """The log is empty."""


class StreamBroken(StreamsError):
    """The log holds what this build cannot render."""
