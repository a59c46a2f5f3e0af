"""Saved states of slots, as the scheduler sees them: opaque things that have a size."""

from typing import Protocol


class State(Protocol):
    """What a slot's cells hold, outside the context. Only the memory that made it can read it."""

    @property
    def nbytes(self) -> int: ...
