"""Names, keys and ids: runs of characters that end where the next part of a pattern begins."""

from collections.abc import Iterable

from services.streams.parsers.errors import Mismatch
from services.streams.parsers.reader import Reader, Reading

MAX_WORD = 256


def word_before(reader: Reader, following: Iterable[str]) -> Reading[str]:
    """Read up to whitespace or the first character of what may follow. Raises Mismatch if there is none."""
    stops = {text.strip()[0] for text in following if text.strip()}
    word = ""
    while (char := (yield from reader.peek())) and not char.isspace() and char not in stops:
        word += char
        reader.pos += 1
        if len(word) > MAX_WORD:
            raise Mismatch
    if not word:
        raise Mismatch
    return word


def digits(reader: Reader) -> Reading[str]:
    """Read a number. Raises Mismatch."""
    word = ""
    while (char := (yield from reader.peek())).isdigit() and len(word) < MAX_WORD:
        word += char
        reader.pos += 1
    if not word:
        raise Mismatch
    return word
