"""From the bytes of sampled tokens to the text that may be shown. Pure, single-threaded.

What a cursor gives out depends on the pieces alone, so feeding it the pieces of a log again brings it
to the state that it had: that is how a generation is continued.
"""

import codecs


class TextCursor:
    """Cuts the pieces of one choice into whole UTF-8 characters and holds back what may become a stop.

    While the text ends inside a character or inside a stop string nothing is given out and, inside a
    character, no stop is looked for (as llama-server). Bytes that are no UTF-8 become U+FFFD.
    """

    def __init__(self, stops: tuple[str, ...] = ()) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        self.stop_word = ""
        """The stop string that was met, or empty. Nothing may be fed after it."""

    def feed(self, piece: bytes, *, is_last: bool = False) -> str:
        """The text that may be shown now. is_last: nothing can complete a stop string any more."""
        self._held += self._decoder.decode(piece)
        if self._decoder.getstate()[0]:
            return ""
        if self._find_stop() or is_last or not self._ends_inside_stop():
            return self._release()
        return ""

    def tail(self) -> str:
        """What is still held when the choice ends; may itself meet a stop string."""
        if self.stop_word:
            return ""
        self._held += self._decoder.decode(b"", final=True)
        self._find_stop()
        return self._release()

    def _release(self) -> str:
        text, self._held = self._held, ""
        return text

    def _find_stop(self) -> bool:
        """Cut the held text before the earliest stop string in it, if there is one."""
        found = [(at, stop) for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if not found:
            return False
        at, self.stop_word = min(found, key=lambda match: match[0])
        self._held = self._held[:at]
        return True

    def _ends_inside_stop(self) -> bool:
        return bool(self._held) and any(_ends_inside(self._held, stop) for stop in self._stops)


def _ends_inside(text: str, stop: str) -> bool:
    """Whether `text` ends with a true prefix of `stop`."""
    at = stop.rfind(text[-1], 0, len(stop) - 1)
    while at >= 0:
        if text.endswith(stop[: at + 1]):
            return True
        at = stop.rfind(text[-1], 0, at)
    return False
