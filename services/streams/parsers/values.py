"""Values as models write them, turned into JSON text while they come.

JSON passes through as it stands; Python's literals, bare keys, quotes of a model's own, raw line
breaks and unknown words become JSON. What is given out is always the beginning of valid JSON.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass

from services.streams.parsers.errors import Mismatch
from services.streams.parsers.markers import literal, text_until
from services.streams.parsers.reader import Reader, Reading

MAX_DEPTH = 128
MAX_WORD = 400
"""Characters of a number or bare word."""
Put = Callable[[str], None]

_PLAIN = {
    '"': re.compile(r'[^"\\\x00-\x1f]+'),
    "'": re.compile(r"[^'\"\\\x00-\x1f]+"),
}
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_END_OF_WORD = re.compile(r"[\s,:}\]){(\[]")
_WORDS = {
    "true": "true", "false": "false", "null": "null",
    "True": "true", "False": "false", "None": "null",
}  # fmt: skip
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


@dataclass(frozen=True, kw_only=True)
class Notation:
    """quote: what stands around strings, besides '"'. has_escapes: backslashes mean something in them.
    has_single: strings may stand in single quotes. has_bare_keys: keys stand there without quotes."""

    quote: str = ""
    has_single: bool = False
    has_bare_keys: bool = False


JSON = Notation()
PYTHON = Notation(has_single=True)


def escaped(text: str) -> str:
    """`text` as it stands inside a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def decoded(text: str) -> str:
    """The text of a JSON string; halves of characters become question marks."""
    return json.loads(text).encode("utf-8", "replace").decode()


def value(reader: Reader, notation: Notation, put: Put, depth: int = 0) -> Reading[None]:
    """Read one value. Raises Mismatch, after what was read so far was given out."""
    if depth > MAX_DEPTH:
        raise Mismatch
    yield from _space(reader, put)
    char = yield from reader.peek()
    if char == "{":
        yield from members(reader, notation, put, depth)
    elif char == "[":
        yield from _items(reader, notation, put, depth)
    elif not (yield from string(reader, notation, put)):
        put(_scalar((yield from _word(reader))))


def members(reader: Reader, notation: Notation, put: Put, depth: int = 0) -> Reading[None]:
    """Read one object."""
    yield from _take(reader, "{", put)
    if (yield from _closes(reader, "}", put)):
        return
    while True:
        yield from _space(reader, put)
        put('"')
        put(escaped((yield from key(reader, notation))))
        put('"')
        yield from _space(reader, put)
        yield from _take(reader, ":", put)
        yield from value(reader, notation, put, depth + 1)
        if (yield from _closes(reader, "}", put)):
            return
        yield from _take(reader, ",", put)


def _items(reader: Reader, notation: Notation, put: Put, depth: int) -> Reading[None]:
    yield from _take(reader, "[", put)
    if (yield from _closes(reader, "]", put)):
        return
    while True:
        yield from value(reader, notation, put, depth + 1)
        if (yield from _closes(reader, "]", put)):
            return
        yield from _take(reader, ",", put)


def key(reader: Reader, notation: Notation) -> Reading[str]:
    """Read the name of a member. Raises Mismatch."""
    parts: list[str] = []
    if (yield from string(reader, notation, parts.append)):
        return decoded("".join(parts))
    if not notation.has_bare_keys:
        raise Mismatch
    found = yield from text_until(reader, (":",), parts.append)
    name = "".join(parts).strip()
    if found is None or not name or len(name) > MAX_WORD:
        raise Mismatch
    return name


def string(reader: Reader, notation: Notation, put: Put) -> Reading[bool]:
    """Read a string, given out as a JSON string. False: there is none."""
    if notation.quote and (yield from literal(reader, notation.quote)):
        put('"')
        found = yield from text_until(reader, (notation.quote,), lambda text: put(escaped(text)))
        if found is None:
            raise Mismatch
        reader.pos = found.end
        put('"')
        return True
    quote = yield from reader.peek()
    if quote != '"' and not (quote == "'" and notation.has_single):
        return False
    reader.pos += 1
    put('"')
    yield from _rest_of_string(reader, quote, put)
    put('"')
    return True


def _rest_of_string(reader: Reader, quote: str, put: Put) -> Reading[None]:
    while True:
        char = yield from reader.peek()
        if not char:
            raise Mismatch
        if char == quote:
            reader.pos += 1
            return
        if char == "\\":
            put((yield from _escape(reader)))
            continue
        plain = _PLAIN[quote].match(reader.text, reader.pos)
        reader.pos = reader.pos + 1 if plain is None else plain.end()
        put(escaped(char) if plain is None else plain.group())


def _escape(reader: Reader) -> Reading[str]:
    """Read a backslash and what belongs to it, given back as JSON has it."""
    reader.pos += 1
    char = yield from reader.peek()
    if not char:
        raise Mismatch
    if char in "ux":
        n = 4 if char == "u" else 2
        while reader.left <= n and (yield from reader.more()):
            pass
        digits = reader.text[reader.pos + 1 : reader.pos + 1 + n]
        if len(digits) < n and reader.is_closed:
            raise Mismatch
        if re.fullmatch(r"[0-9a-fA-F]+", digits):
            reader.pos += 1 + n
            return "\\u" + digits.rjust(4, "0")
    reader.pos += 1
    if char in '"\\/':
        return "\\" + char
    if char in "'\n":
        return escaped(char) if char == "'" else ""
    return escaped(_ESCAPES.get(char, "\\" + char))


def _word(reader: Reader) -> Reading[str]:
    """Read up to what ends a number or a bare word."""
    start = reader.mark()
    try:
        while True:
            found = _END_OF_WORD.search(reader.text, reader.pos)
            if found is not None:
                reader.pos = found.start()
                break
            reader.pos = len(reader.text)
            if reader.pos - start > MAX_WORD or not (yield from reader.more()):
                raise Mismatch
        return reader.text[start : reader.pos]
    finally:
        reader.release()


def _scalar(word: str) -> str:
    """A bare word as JSON. Raises Mismatch for an empty one."""
    if not word:
        raise Mismatch
    if word in _WORDS:
        return _WORDS[word]
    return word if _NUMBER.fullmatch(word) else json.dumps(word, ensure_ascii=False)


def _space(reader: Reader, put: Put) -> Reading[None]:
    while (char := (yield from reader.peek())).isspace():
        put(char if char in " \t\r\n" else " ")
        reader.pos += 1


def _take(reader: Reader, char: str, put: Put) -> Reading[None]:
    if (yield from reader.peek()) != char:
        raise Mismatch
    reader.pos += 1
    put(char)


def _closes(reader: Reader, char: str, put: Put) -> Reading[bool]:
    yield from _space(reader, put)
    if (yield from reader.peek()) != char:
        return False
    reader.pos += 1
    put(char)
    return True


def from_text(text: str, types: tuple[str, ...]) -> str:
    """A whole value that was written bare, as JSON. types: that it may be, none: unknown.

    What is no JSON (or Python literal), and what must be a string, is a string.
    """
    stripped = text.strip()
    if types == ("string",) or not stripped:
        return json.dumps(text, ensure_ascii=False)
    found = _parsed(stripped)
    if found is None or (types and _type_of(found) not in _with_integers(types)):
        return json.dumps(text, ensure_ascii=False)
    return found


def _parsed(text: str) -> str | None:
    reader, parts = Reader(), []
    reader.feed(text + " ")
    reader.is_closed = True
    try:
        for _ in value(reader, PYTHON, parts.append):
            pass
    except Mismatch:
        return None
    found = "".join(parts)
    is_bare_word = found.startswith('"') and text[0] not in "\"'"
    return None if reader.text[reader.pos :].strip() or is_bare_word else found


def _type_of(text: str) -> str:
    if text[0] in '{["':
        return {"{": "object", "[": "array", '"': "string"}[text[0]]
    if text in ("true", "false"):
        return "boolean"
    if text == "null":
        return "null"
    return "integer" if text.lstrip("-").isdigit() else "number"


def _with_integers(types: tuple[str, ...]) -> tuple[str, ...]:
    return (*types, "integer") if "number" in types else types
