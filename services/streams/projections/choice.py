"""One choice of an answer while it grows, and the pieces that its events cut it into."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from schemas.events import ChoiceEnd, ChoiceStart, Timings, TokenProbs, Tokens
from services.streams.parsers.deltas import Span


class Piece(NamedTuple):
    """What one frame shows. n_predicted: tokens of the choice up to and with this piece."""

    text: str
    ids: tuple[int, ...]
    probs: tuple[TokenProbs, ...]
    n_predicted: int


def joined(held: Piece | None, piece: Piece) -> Piece:
    """`piece` with what was held back before it."""
    if held is None:
        return piece
    ids, probs = held.ids + piece.ids, held.probs + piece.probs
    return piece._replace(text=held.text + piece.text, ids=ids, probs=probs)


@dataclass(kw_only=True)
class Choice:
    """The state of one choice. n_prompt, n_cached, n_predicted: tokens. Times in microseconds.

    texts, ids, probs: of the whole choice, gathered only for answers that are not streamed.
    held_ids, held_probs: of tokens whose text is still held back; they go with the next frame.
    starts: per token, how many characters of the choice's text came before it; kept where thoughts
    are counted (counts_thoughts). is_begun: it has had a slot.
    """

    index: int
    n_prompt: int
    n_cached: int = 0
    n_predicted: int = 0
    prompt_us: int = 0
    generating_us: int = 0
    heard_us: int | None = None
    texts: list[str] = field(default_factory=list[str])
    ids: list[int] = field(default_factory=list[int])
    probs: list[TokenProbs] = field(default_factory=list[TokenProbs])
    held_ids: tuple[int, ...] = ()
    held_probs: tuple[TokenProbs, ...] = ()
    end: ChoiceEnd | None = None
    counts_thoughts: bool = False
    starts: list[int] = field(default_factory=list[int])
    n_chars: int = 0
    is_begun: bool = False

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def on_attempt(self, start: ChoiceStart) -> None:
        """An attempt begins. What the first one found in its cache is what the answer reports."""
        self.heard_us = None
        if not self.is_begun:
            self.is_begun = True
            self.n_prompt, self.n_cached = start.n_prompt, start.n_cached

    def on_tokens(self, event: Tokens) -> None:
        """Count. Generating time is what passed between the token events of each attempt."""
        is_first = self.n_predicted == 0
        self.n_predicted = event.index + len(event.ids)
        if is_first and event.prompt_us:
            self.prompt_us = self.heard_us = event.prompt_us
        if self.heard_us is not None:
            self.generating_us += event.elapsed_us - self.heard_us
        self.heard_us = event.elapsed_us
        self.end = event.end
        if self.counts_thoughts:
            self._note_starts(event.texts)

    def _note_starts(self, texts: Iterable[str]) -> None:
        for text in texts:
            self.starts.append(self.n_chars)
            self.n_chars += len(text)

    def n_thought(self, thoughts: Sequence[Span]) -> int:
        """How many tokens begin inside `thoughts`, spans of the whole text."""
        return sum(self._n_before(span.end) - self._n_before(span.start) for span in thoughts)

    def _n_before(self, place: int | None) -> int:
        return len(self.starts) if place is None else bisect_left(self.starts, place)

    def collect(self, event: Tokens) -> None:
        self.texts += event.texts
        self.ids += event.ids
        self.probs += event.probs
        if event.end is not None and event.end.tail:
            self.texts.append(event.end.tail)
        if event.end is not None and event.end.n_cut:
            self.texts = [self.text[: -event.end.n_cut]]

    def timings(self) -> Timings:
        """What it has cost so far; the engine's own figures once it ended."""
        if self.end is not None:
            return self.end.timings
        # llama-server never shows 0 µs for a token that is there.
        generating_us = max(1, self.generating_us) if self.n_predicted else 0
        return Timings(
            n_cached=self.n_cached,
            n_prompt=self.n_prompt - self.n_cached,
            prompt_ms=self.prompt_us / 1000,
            n_predicted=self.n_predicted,
            predicted_ms=generating_us / 1000,
        )


def cut(choice: Choice, event: Tokens) -> Iterator[Piece]:
    """The pieces that `event` adds: one in all, or one per token where probabilities were asked for.

    Tokens without text go along with the next piece; at the end, what is left is a piece of its own.
    """
    tail = "" if event.end is None else event.end.tail
    if event.probs and len(event.probs) == len(event.ids) == len(event.texts):
        yield from _cut_tokens(choice, event)
        yield from _cut_text(choice, tail, (), ())
    else:
        text = event.texts[0] if len(event.texts) == 1 else "".join(event.texts)
        yield from _cut_text(choice, text + tail, event.ids, event.probs)
    if event.end is not None and choice.held_ids:
        yield Piece("", choice.held_ids, choice.held_probs, choice.n_predicted)
        choice.held_ids, choice.held_probs = (), ()


def _cut_tokens(choice: Choice, event: Tokens) -> Iterator[Piece]:
    n_predicted = event.index
    for token, text, probs in zip(event.ids, event.texts, event.probs, strict=True):
        n_predicted += 1
        for piece in _cut_text(choice, text, (token,), (probs,)):
            yield piece._replace(n_predicted=n_predicted)


def _cut_text(
    choice: Choice, text: str, ids: tuple[int, ...], probs: tuple[TokenProbs, ...]
) -> Iterator[Piece]:
    ids, probs = choice.held_ids + ids, choice.held_probs + probs
    if text:
        choice.held_ids, choice.held_probs = (), ()
        yield Piece(text, ids, probs, choice.n_predicted)
    else:
        choice.held_ids, choice.held_probs = ids, probs
