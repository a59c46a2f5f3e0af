"""Where parsers put what they are certain of: deltas of one message, in order."""

from collections.abc import Callable

from services.streams.parsers.deltas import CALLS, CONTENT, THOUGHTS, CallHead, Delta


class Sink:
    """Gathers deltas until they are fetched; neighbours of one kind become one."""

    def __init__(self) -> None:
        self._deltas: list[Delta] = []
        self.n_calls = 0

    def fetch(self) -> list[Delta]:
        deltas, self._deltas = self._deltas, []
        return deltas

    def content(self, text: str) -> None:
        self._add(Delta(CONTENT, text))

    def thoughts(self, text: str) -> None:
        self._add(Delta(THOUGHTS, text))

    def call(self, head: CallHead) -> None:
        """A tool call begins; what follows are its arguments."""
        self._deltas.append(Delta(CALLS, "", self.n_calls, head))
        self.n_calls += 1

    def arguments(self, text: str) -> None:
        """More of the arguments of the last call."""
        self._add(Delta(CALLS, text, self.n_calls - 1))

    def _add(self, delta: Delta) -> None:
        if not delta.text:
            return
        last = self._deltas[-1] if self._deltas else None
        is_same = last is not None and (last.field, last.call) == (delta.field, delta.call)
        if last is not None and is_same and last.head is None:
            self._deltas[-1] = last._replace(text=last.text + delta.text)
        else:
            self._deltas.append(delta)


class Trimmed:
    """Text without the whitespace at its ends, as far as that is not `release`d.

    put: takes what is certain. keeps_start, keeps_end: whitespace there is text, too.
    """

    def __init__(
        self, put: Callable[[str], None], *, keeps_start: bool = False, keeps_end: bool = False
    ) -> None:
        self._put = put
        self._held = ""
        self._has_begun = keeps_start
        self._keeps_end = keeps_end

    def add(self, text: str) -> None:
        text = self._held + text
        if not self._has_begun:
            text = text.lstrip()
        shown = text if self._keeps_end else text.rstrip()
        self._held = text[len(shown) :]
        if shown:
            self._has_begun = True
            self._put(shown)

    def release(self) -> None:
        """The whitespace that is held back is text after all."""
        if self._has_begun and self._held:
            self._put(self._held)
        self._held = ""
