"""Text that comes in pieces, read as if all of it were there.

Parsers are generators: where they need text that has not come yet they yield, and go on when it has.
So no decision depends on how the text was cut. Positions count in characters of what is kept.
"""

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")
Reading = Generator[None, None, T]


class Reader:
    """The text so far, and how far it was read. is_closed: no more will come."""

    def __init__(self) -> None:
        self.text = ""
        self.pos = 0
        self.is_closed = False
        self._n_marks = 0
        self._n_forgotten = 0

    def feed(self, text: str) -> None:
        """Append; what was read and is not marked is forgotten."""
        if self.pos and not self._n_marks:
            self._n_forgotten += self.pos
            self.text, self.pos = self.text[self.pos :], 0
        self.text += text

    @property
    def left(self) -> int:
        return len(self.text) - self.pos

    @property
    def offset(self) -> int:
        """The position in all that was ever fed."""
        return self._n_forgotten + self.pos

    def more(self) -> Reading[bool]:
        """Wait for more text. False: there is none."""
        if self.is_closed:
            return False
        n_before = len(self.text) - self.pos
        while len(self.text) - self.pos <= n_before:
            yield
            if self.is_closed:
                return len(self.text) - self.pos > n_before
        return True

    def peek(self) -> Reading[str]:
        """The next character, empty at the end."""
        while not self.left:
            if not (yield from self.more()):
                return ""
        return self.text[self.pos]

    def skip_space(self) -> Reading[None]:
        while (yield from self.peek()).isspace():
            self.pos += 1

    def mark(self) -> int:
        """The position, to come back to by `reset`; text is kept until `release`."""
        self._n_marks += 1
        return self.pos

    def reset(self, mark: int) -> None:
        self.pos = mark
        self.release()

    def release(self) -> None:
        self._n_marks -= 1
