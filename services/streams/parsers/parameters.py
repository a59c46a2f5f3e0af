"""Calls whose arguments are written one by one, in tags or as in Python, built into a JSON object."""

from schemas.output_format import ELEMENTS, KEY, PYTHON, RAW, TYPE, Parameters, Shape
from services.streams.parsers.call import Call
from services.streams.parsers.elements import element_value
from services.streams.parsers.errors import Mismatch
from services.streams.parsers.markers import literal, text_until, words_of
from services.streams.parsers.reader import Reader, Reading
from services.streams.parsers.values import JSON as JSON_NOTATION
from services.streams.parsers.values import PYTHON as PYTHON_NOTATION
from services.streams.parsers.values import escaped, from_text, value
from services.streams.parsers.words import word_before

UNKNOWN = Shape()
CDATA = ("<![CDATA[", "]]>")


def parameters(
    reader: Reader, how: Parameters, call: Call, after: tuple[str, ...]
) -> Reading[None]:
    """Read all parameters of a call. after: what may follow the last one. Raises Mismatch."""
    head = yield from _next_head(reader, how, is_first=True)
    if head is None and after and not (yield from _is_next(reader, after[0])):
        raise Mismatch
    call.announce()
    call.put("{")
    before = ""
    while head is not None:
        key, word = head
        call.put(f'{before}"{escaped(key)}": ')
        before = ", "
        yield from _value(reader, how, call, key, word, after)
        head = yield from _next_head(reader, how, is_first=False)
    call.put("}")


def _is_next(reader: Reader, text: str) -> Reading[bool]:
    """Whether the text goes on with the first word of that one."""
    start = reader.mark()
    words = words_of(text)
    found = not words or (yield from literal(reader, words[0]))
    reader.reset(start)
    return found


def _next_head(
    reader: Reader, how: Parameters, *, is_first: bool
) -> Reading[tuple[str, str] | None]:
    """Read up to the value of the next parameter. None: there is none, and nothing was read."""
    start = reader.mark()
    if not is_first and how.separator.strip():
        yield from literal(reader, how.separator)
    head = yield from _head_if_any(reader, how)
    if head is None:
        reader.reset(start)
    else:
        reader.release()
    return head


def _head_if_any(reader: Reader, how: Parameters) -> Reading[tuple[str, str] | None]:
    try:
        return (yield from _head(reader, how))
    except Mismatch:
        return None


def _head(reader: Reader, how: Parameters) -> Reading[tuple[str, str] | None]:
    """Read up to the value: the key, and the word for its type. None: no parameter begins here."""
    key = word = ""
    for number, part in enumerate(how.head):
        if part.kind == KEY:
            if not number:
                yield from reader.skip_space()
            key = yield from word_before(reader, _texts(how, number + 1))
        elif part.kind == TYPE:
            word = yield from word_before(reader, _texts(how, number + 1))
        elif not (yield from literal(reader, part.text)):
            return None
    return None if key.startswith("/") else (key, word)


def _texts(how: Parameters, number: int) -> tuple[str, ...]:
    return tuple(part.text for part in how.head[number:] if part.text)


def _value(
    reader: Reader, how: Parameters, call: Call, key: str, word: str, after: tuple[str, ...]
) -> Reading[None]:
    shape = call.tool.parameters.get(key, UNKNOWN)
    if how.notation == ELEMENTS:
        yield from element_value(reader, how.namespace, key, shape, call.put)
    elif how.notation == RAW:
        types = _types(how, word) or shape.types
        yield from _RawValue(reader, how, call, after).read(types)
    else:
        notation = PYTHON_NOTATION if how.notation == PYTHON else JSON_NOTATION
        yield from value(reader, notation, call.put)
        if how.tail.strip():
            yield from literal(reader, how.tail)


def _types(how: Parameters, word: str) -> tuple[str, ...]:
    """JSON types that a TYPE part's word stands for: a word for strings only is believed."""
    found = tuple(kind for kind, known in how.types.items() if known == word)
    return found if found == ("string",) else ()


class _RawValue:
    """A value between its head and its tail. Strings are given out as they come."""

    def __init__(self, reader: Reader, how: Parameters, call: Call, after: tuple[str, ...]) -> None:
        self._reader = reader
        self._how = how
        self._call = call
        self._next = (*_texts(how, 0)[:1], how.separator, *after)
        self._held = ""
        self._parts: list[str] = []
        self._is_text = False

    def read(self, types: tuple[str, ...]) -> Reading[None]:
        self._is_text = types == ("string",)
        yield from self._skip_line_break()
        if self._is_text:
            self._call.put('"')
        if self._how.has_cdata and (yield from literal(self._reader, CDATA[0])):
            yield from self._until(CDATA[1])
        yield from self._until_tail()
        if self._is_text:
            self._call.put('"')
        else:
            self._call.put(from_text("".join(self._parts), types))

    def _skip_line_break(self) -> Reading[None]:
        """The line break that the template writes in front of every value."""
        before = self._how.head[-1].text
        if before.endswith("\n") and (yield from self._reader.peek()) == "\n":
            self._reader.pos += 1

    def _until(self, marker: str) -> Reading[None]:
        found = yield from text_until(self._reader, (marker,), self._take)
        if found is None:
            raise Mismatch
        self._reader.pos = found.end

    def _until_tail(self) -> Reading[None]:
        tail = self._how.tail.strip()
        while True:
            found = yield from text_until(self._reader, (tail,), self._take)
            if found is None:
                raise Mismatch
            text = self._reader.text[self._reader.pos : found.end]
            self._reader.pos = found.end
            if (yield from self._is_end()):
                return
            self._take(text)

    def _is_end(self) -> Reading[bool]:
        """Whether what follows a tail shows that it is one, and not part of the value."""
        start = self._reader.mark()
        yield from self._reader.skip_space()
        is_end = not (yield from self._reader.peek())
        self._reader.reset(start)
        for text in self._next:
            if not is_end and words_of(text):
                is_end = yield from _is_next(self._reader, text)
        return is_end

    def _take(self, text: str) -> None:
        """Hold one line break back: the template writes it in front of the tail."""
        text, self._held = self._held + text, ""
        if self._how.tail.startswith("\n") and text.endswith("\n"):
            text, self._held = text[:-1], "\n"
        if self._is_text:
            self._call.put(escaped(text))
        else:
            self._parts.append(text)
