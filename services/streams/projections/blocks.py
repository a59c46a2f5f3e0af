"""The blocks that a message is made of, for dialects that number and close them.

OpenAI's chat has one message with fields; Anthropic's messages and OpenAI's responses have a list of
blocks in the order in which the model wrote them: thoughts, text, tool calls. A block ends when
another one begins. Pure; the text of a block does not depend on how it was cut.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from services.streams.projections.message import (
    CALLS,
    CONTENT,
    THOUGHTS,
    Delta,
    MessageParser,
    Span,
)


class Kind(Enum):
    TEXT = "text"
    THOUGHT = "thought"
    CALL = "call"


class Step(Enum):
    OPENED = "opened"
    GREW = "grew"
    CLOSED = "closed"


@dataclass(kw_only=True)
class Block:
    """index: its place in the message, from 0. call: number of the tool call, else None.

    call_id, name: of a tool call. parts: its text so far; for a call, of the arguments.
    """

    index: int
    kind: Kind
    call: int | None = None
    call_id: str = ""
    name: str = ""
    parts: list[str] = field(default_factory=list[str])

    @property
    def text(self) -> str:
        return "".join(self.parts)


class Change(NamedTuple):
    """What happened to a block. text: what was added to it."""

    step: Step
    block: Block
    text: str = ""


class Blocks:
    """One message as it grows. parser: a fresh one. A model finishes a call before the next one."""

    def __init__(self, parser: MessageParser) -> None:
        self._parser = parser
        self._all: list[Block] = []

    @property
    def all(self) -> Sequence[Block]:
        """The blocks so far; the last one is open until `close`."""
        return self._all

    @property
    def thoughts(self) -> Sequence[Span]:
        """Where the thoughts stand in the text."""
        return self._parser.thoughts

    @property
    def has_calls(self) -> bool:
        return any(block.kind is Kind.CALL for block in self._all)

    def feed(self, text: str) -> Iterator[Change]:
        """What `text` (not empty) changes. Use it up before the next call."""
        for delta in self._parser.feed(text):
            yield from self._take(delta)

    def close(self) -> Iterator[Change]:
        """What the end of the text changes; the last block is closed."""
        for delta in self._parser.close():
            yield from self._take(delta)
        if self._all:
            yield Change(Step.CLOSED, self._all[-1])

    def _take(self, delta: Delta) -> Iterator[Change]:
        block, changes = self._block_of(delta)
        yield from changes
        if delta.text:
            block.parts.append(delta.text)
            yield Change(Step.GREW, block, delta.text)

    def _block_of(self, delta: Delta) -> tuple[Block, list[Change]]:
        """The block that `delta` adds to, and what it took to have it open."""
        kind = _KINDS[delta.field]
        call = delta.call if kind is Kind.CALL else None
        last = self._all[-1] if self._all else None
        if last is not None and last.kind is kind and last.call == call:
            return last, []
        block = Block(index=len(self._all), kind=kind, call=call)
        if delta.head is not None:
            block.call_id, block.name = delta.head
        changes = [] if last is None else [Change(Step.CLOSED, last)]
        self._all.append(block)
        return block, [*changes, Change(Step.OPENED, block)]


_KINDS = {CONTENT: Kind.TEXT, THOUGHTS: Kind.THOUGHT, CALLS: Kind.CALL}
