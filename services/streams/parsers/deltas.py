"""What parsers give out: additions to an assistant message."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

CONTENT = "content"
THOUGHTS = "reasoning_content"
CALLS = "tool_calls"


class CallHead(NamedTuple):
    """How a tool call begins. id: the model's own, or one derived from the generation."""

    id: str
    name: str


class Delta(NamedTuple):
    """An addition to the message.

    field: its key: CONTENT, THOUGHTS or CALLS. text: what is added to its value; of a call, to its
    arguments. call: number of the tool call, from 0. head: only in the first delta of a call.
    """

    field: str
    text: str
    call: int = 0
    head: CallHead | None = None


class Span(NamedTuple):
    """A part of the text of a choice, in characters; what the client sent of it counts below 0.
    end: None while it is open."""

    start: int
    end: int | None


class MessageParser(Protocol):
    """Takes the text of one choice in pieces of any size; the deltas do not depend on the cuts."""

    @property
    def thoughts(self) -> Sequence[Span]:
        """Where the thoughts so far stand, with what marks them; in order."""
        ...

    def feed(self, text: str) -> Sequence[Delta]:
        """The deltas that `text` (not empty) makes certain."""
        ...

    def close(self) -> Sequence[Delta]:
        """The deltas that the end makes certain. Called once."""
        ...


class PlainText:
    """All text is content."""

    thoughts: Sequence[Span] = ()

    def feed(self, text: str) -> Sequence[Delta]:
        return (Delta(CONTENT, text),)

    def close(self) -> Sequence[Delta]:
        return ()
