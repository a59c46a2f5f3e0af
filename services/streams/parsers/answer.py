"""The text of an answer as the parts of a message: thoughts, content, tool calls.

Nothing raises here: what cannot be read as a call is content, whatever the model wrote.
"""

from collections.abc import Callable, Sequence

from schemas.output_format import OutputFormat
from services.streams.parsers.calls import CallsReader
from services.streams.parsers.deltas import Delta, Span
from services.streams.parsers.errors import Mismatch
from services.streams.parsers.markers import first_of, literal, text_until, words_of
from services.streams.parsers.reader import Reader, Reading
from services.streams.parsers.sink import Sink, Trimmed

FIELD, IN_CONTENT, BOTH = "field", "content", "both"


class AnswerParser:
    """Parses one choice; a MessageParser.

    seed: what tool call ids are derived from. is_whole: give out the beginning that the client sent
    itself, too, as answers that are not streamed do.
    """

    def __init__(self, description: OutputFormat, *, seed: str, is_whole: bool = False) -> None:
        self._format = description
        self._reader = Reader()
        self._sink = Sink()
        self._held: Trimmed | None = None
        self._is_raw = description.thoughts != FIELD
        self.thoughts: list[Span] = []
        calls = description.calls
        self._calls = (
            None
            if calls is None
            else CallsReader(self._reader, self._sink, calls, description.tools, seed)
        )
        self._run = self._answer()
        self._is_running = True
        self._begin(is_whole=is_whole)

    def feed(self, text: str) -> Sequence[Delta]:
        self._reader.feed(text)
        self._advance()
        return self._sink.fetch()

    def close(self) -> Sequence[Delta]:
        self._reader.is_closed = True
        self._advance()
        return self._sink.fetch()

    def _begin(self, *, is_whole: bool) -> None:
        """Read what stands in the prompt already."""
        self._reader.feed(self._format.prefix)
        self._advance()
        if self._format.is_continued:
            if self._held is not None:
                self._held.release()
            if not is_whole:
                self._sink.fetch()

    def _advance(self) -> None:
        """Read as far as the text goes."""
        if self._is_running:
            try:
                next(self._run)
                return
            except (StopIteration, Mismatch):
                self._is_running = False
                self._end_thoughts()
        self._sink.content(self._reader.text[self._reader.pos :])
        self._reader.pos = len(self._reader.text)

    # ---- the parts of an answer

    def _answer(self) -> Reading[None]:
        has_text_before = not self._format.thought_start and bool(self._format.thought_end)
        if has_text_before:
            yield from self._thoughts("")
        while (yield from self._has_more()):
            has_text_before = yield from self._part(is_first=not has_text_before)

    def _has_more(self) -> Reading[bool]:
        return bool(self._reader.left) or (yield from self._reader.more())

    def _part(self, *, is_first: bool) -> Reading[bool]:
        start = self._reader.mark()
        yield from self._reader.skip_space()
        opener = yield from first_of(self._reader, self._openers)
        if opener is None and (yield from self._has_calls()):
            self._reader.release()
            return True
        if opener is None:
            self._reader.reset(start)
            yield from self._content(keeps_start=is_first or self._is_raw)
            return True
        read = self._reader.text[start : self._reader.pos]
        self._reader.release()
        if opener == self._format.thought_start:
            yield from self._thoughts(read)
        elif opener in self._format.content_starts:
            yield from self._content(keeps_start=False)
        return True

    @property
    def _openers(self) -> list[str]:
        """What a part may begin with, besides calls."""
        own = self._format
        markers = [*own.turns, own.thought_start, own.thought_end, *own.content_starts]
        return [marker for marker in markers if words_of(marker)]

    def _has_calls(self) -> Reading[bool]:
        if self._calls is None:
            return False
        if not self._calls.starts and (yield from self._reader.peek()) != "{":
            return False
        return (yield from self._calls.block())

    def _thoughts(self, opener: str) -> Reading[None]:
        """Read thoughts to their end. opener: the text that began them."""
        self.thoughts.append(Span(self._place - len(opener), None))
        self._raw(opener)
        put = Trimmed(self._sink.thoughts if self._format.thoughts != IN_CONTENT else _drop)
        self._held = put
        yield from self._thoughts_into(self._doubled(put.add))
        self._end_thoughts()
        self._held = None

    def _end_thoughts(self) -> None:
        if self.thoughts and self.thoughts[-1].end is None:
            self.thoughts[-1] = self.thoughts[-1]._replace(end=self._place)

    @property
    def _place(self) -> int:
        return self._reader.offset - len(self._format.prefix)

    def _thoughts_into(self, take: Callable[[str], None]) -> Reading[None]:
        own = self._format
        cuts = self._call_starts if own.calls is not None and own.calls.cuts_thoughts else ()
        ends = (own.thought_end, *own.content_starts, *cuts)
        while True:
            found = yield from text_until(self._reader, ends, take)
            if found is None:
                return
            text = self._reader.text[found.start : found.end]
            if found.marker == own.thought_end:
                self._reader.pos = found.end
                self._raw(text)
                return
            if found.marker in own.content_starts or (yield from self._has_calls()):
                return
            take(text)
            self._reader.pos += len(text)

    def _doubled(self, take: Callable[[str], None]) -> Callable[[str], None]:
        """`take`, and content too where thoughts stay in it."""

        def both(text: str) -> None:
            take(text)
            self._raw(text)

        return both

    def _raw(self, text: str) -> None:
        if self._is_raw and text:
            self._sink.content(text)

    def _content(self, *, keeps_start: bool) -> Reading[None]:
        keeps_end = self._calls is None
        put = Trimmed(self._sink.content, keeps_start=keeps_start, keeps_end=keeps_end)
        self._held = put
        own = self._format
        more = (own.thought_start, own.thought_end) if own.has_many_thoughts else ()
        stops = (own.content_end, *own.turns, *more, *self._call_starts)
        while True:
            found = yield from text_until(self._reader, stops, put.add)
            if found is None:
                put.release()
                break
            text = self._reader.text[found.start : found.end]
            if found.marker not in self._call_starts:
                yield from self._end_content(found.marker)
                break
            if (yield from self._has_calls()):
                break
            put.add(text)
            self._reader.pos += len(text)
        self._held = None

    def _end_content(self, marker: str) -> Reading[None]:
        if marker == self._format.content_end:
            yield from literal(self._reader, marker)

    @property
    def _call_starts(self) -> tuple[str, ...]:
        return () if self._calls is None else self._calls.starts


def _drop(text: str) -> None:
    del text
