"""Tool calls in the text of an answer, read by the patterns of its description."""

import re
from collections.abc import Mapping

from schemas import output_format as fmt
from schemas.output_format import Calls, Part, Tool
from services.streams.parsers.call import Call
from services.streams.parsers.errors import Mismatch
from services.streams.parsers.markers import literal, text_until, words_of
from services.streams.parsers.objects import arguments, call_object
from services.streams.parsers.parameters import parameters
from services.streams.parsers.reader import Reader, Reading
from services.streams.parsers.sink import Sink
from services.streams.parsers.words import digits, word_before

MAX_SKIPPED = 200
"""Characters that an ANY part may stand for."""
MIN_TAG = 3
_PIECE = re.compile(r"<[^<>]*>|\w+|[^\w\s]")


class CallsReader:
    """Reads calls of one answer. seed: what ids are derived from."""

    def __init__(
        self, reader: Reader, sink: Sink, calls: Calls, tools: tuple[Tool, ...], seed: str
    ) -> None:
        self._reader = reader
        self._sink = sink
        self._calls = calls
        self._tools: Mapping[str, Tool] = {tool.name: tool for tool in tools}
        self._seed = seed
        self.starts = tuple(_starts(calls))
        """What calls begin with; none: they are bare objects."""

    def block(self) -> Reading[bool]:
        """Read the calls that begin here. False: there are none, and nothing was read."""
        start = self._reader.mark()
        has_start = bool(words_of(self._calls.start)) and (
            yield from literal(self._reader, self._calls.start)
        )
        n_read = 0
        while (yield from self._next(is_first=not n_read, has_start=has_start)):
            n_read += 1
        if not n_read:
            self._reader.reset(start)
            return False
        self._reader.release()
        if has_start and words_of(self._calls.end):
            yield from self._lenient(self._calls.end)
        return True

    def _next(self, *, is_first: bool, has_start: bool) -> Reading[bool]:
        """Read one more call, maybe a broken one. False: there is none here."""
        start = self._reader.mark()
        if not is_first and words_of(self._calls.separator):
            yield from literal(self._reader, self._calls.separator)
        before = self._reader.pos
        for pattern in self._patterns(has_start=has_start):
            call = Call(self._sink, self._calls, self._tools, self._seed)
            try:
                yield from self._follow(pattern, call)
            except Mismatch:
                if not call.is_announced:
                    self._reader.pos = before
                    continue
            self._reader.release()
            return True
        self._reader.reset(start)
        return False

    def _patterns(self, *, has_start: bool) -> list[tuple[Part, ...]]:
        """Calls without the marker in front of all are only known by one of their own."""
        needs_own = bool(words_of(self._calls.start)) and not has_start
        known = self._calls.patterns
        return [parts for parts in known if not needs_own or parts[0].kind == fmt.TEXT]

    def _follow(self, pattern: tuple[Part, ...], call: Call) -> Reading[None]:
        for number, part in enumerate(pattern):
            rest = pattern[number + 1 :]
            match part.kind:
                case fmt.TEXT:
                    yield from self._text(part.text, call)
                case fmt.NAME:
                    yield from self._reader.skip_space()
                    call.name = yield from word_before(self._reader, self._following(rest))
                    _ = call.tool
                case fmt.ID:
                    call.id = yield from word_before(self._reader, self._following(rest))
                case fmt.INDEX:
                    call.index = yield from digits(self._reader)
                case fmt.ANY:
                    yield from self._skip(rest)
                case fmt.OBJECT:
                    yield from call_object(self._reader, self._calls, call)
                case fmt.ARGUMENTS:
                    yield from arguments(self._reader, self._calls, call)
                case _:
                    yield from self._parameters(rest, call)
        call.announce()

    def _parameters(self, rest: tuple[Part, ...], call: Call) -> Reading[None]:
        assert self._calls.parameters is not None
        after = tuple(part.text for part in rest if part.text)
        yield from parameters(self._reader, self._calls.parameters, call, after)

    def _text(self, text: str, call: Call) -> Reading[None]:
        if not words_of(text):
            return
        if call.is_announced:
            yield from self._lenient(text)
        elif not (yield from literal(self._reader, text)):
            raise Mismatch

    def _lenient(self, text: str) -> Reading[None]:
        """Read a closing text, or what the model wrote of it."""
        for piece in _PIECE.findall(text):
            yield from literal(self._reader, piece)

    def _skip(self, rest: tuple[Part, ...]) -> Reading[None]:
        skipped: list[str] = []

        def take(text: str) -> None:
            skipped.append(text)
            if sum(map(len, skipped)) > MAX_SKIPPED:
                raise Mismatch

        found = yield from text_until(self._reader, (rest[0].text,), take)
        if found is None:
            raise Mismatch

    def _following(self, rest: tuple[Part, ...]) -> list[str]:
        """The texts that may come next."""
        texts: list[str] = []
        for part in rest:
            if part.kind == fmt.ARGUMENTS:
                return [*texts, "{"]
            if part.kind == fmt.PARAMETERS:
                assert self._calls.parameters is not None
                texts += [head.text for head in self._calls.parameters.head[:1] if head.text]
            elif words_of(part.text):
                return [*texts, part.text]
        return texts


def _starts(calls: Calls) -> list[str]:
    starts = [calls.start] if words_of(calls.start) else []
    for pattern in calls.patterns:
        first = pattern[0]
        if first.kind == fmt.TEXT and len(first.text.strip()) >= MIN_TAG:
            starts.append(first.text)
    return starts
