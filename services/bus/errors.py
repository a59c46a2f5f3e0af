"""Errors of the bus.

BusError(LlamatapeError)
├── BusUnavailable     the broker cannot be reached or did not answer in time
├── Fenced             somebody else wrote to the log first: read it again and obey
├── LogClosed          the log has its terminal event: nothing may be appended
├── LogPurged          the log went while it was read: the archive has it
├── MessageTooLarge    the entry does not fit into a broker message
├── StoreFull          the generations' log has reached its size limit
├── KeyConflict        a bucket's key has another revision than expected
├── NoResponder        nobody serves that RPC subject
└── RpcTimeout         somebody does, but did not answer in time
"""

from schemas.errors import LlamatapeError


class BusError(LlamatapeError):
    """Base of the bus's errors."""


class BusUnavailable(BusError):
    """The broker cannot be reached or did not answer in time."""


class Fenced(BusError):
    """Somebody else wrote to the log first; the caller's state is stale."""


class LogClosed(BusError):
    """The log has its terminal event."""


class LogPurged(BusError):
    """The log went from the broker while it was read; the archive has it."""


class MessageTooLarge(BusError):
    """The entry does not fit into a broker message."""


class StoreFull(BusError):
    """The generations' log has reached its size limit."""


class KeyConflict(BusError):
    """A bucket's key has another revision than expected."""


class NoResponder(BusError):
    """Nobody serves that RPC subject."""


class RpcTimeout(BusError):
    """The server of that RPC subject did not answer in time."""
