"""`n_indent`: a choice ends at the first line that is indented less than asked for. Pure."""

_BLANKS = b" \t"


class Indentation:
    """Looks at all that was generated, shown or still held back, as llama-server does.

    n_kept: after the end, the bytes that are no part of that line's text.
    """

    def __init__(self, n_indent: int) -> None:
        self.n_kept = 0
        self._n_indent = n_indent
        self._text = bytearray()
        self._line = 0

    def feed(self, piece: bytes, *, has_new_line: bool) -> bool:
        """A token came; True: the choice ends. has_new_line: whether one had been shown before it."""
        self._text += piece
        if not has_new_line:
            return False
        if self._line and self._is_too_far_left():
            return True
        at = self._text.find(b"\n", self._line)
        self._line = at + 1 if at >= 0 else self._line
        return False

    def kept_text(self) -> str:
        """The text before what was cut off."""
        return self._text[: self.n_kept].decode("utf-8", "replace")

    def _is_too_far_left(self) -> bool:
        at = self._line
        while at < len(self._text) and self._text[at] in _BLANKS:
            at += 1
        if at == len(self._text) or at - self._line >= self._n_indent:
            return False
        self.n_kept = at
        return True
