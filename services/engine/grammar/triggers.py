"""What wakes a lazy grammar: words and patterns in the output, or tokens."""

from collections.abc import Sequence
from dataclasses import dataclass

from schemas.params import GrammarTrigger
from services.engine.grammar import regex
from services.engine.grammar.search import Pattern, Search

TOKEN, WORD, PATTERN, PATTERN_FULL = "token", "word", "pattern", "pattern_full"
KINDS = (TOKEN, WORD, PATTERN, PATTERN_FULL)
"""In the order of llama.cpp's numbers for them."""


@dataclass(frozen=True, slots=True)
class Triggers:
    """tokens: ids. patterns: looked for in the output, in order; see `compile_triggers`."""

    tokens: frozenset[int]
    patterns: tuple[Pattern, ...]


def compile_triggers(triggers: Sequence[GrammarTrigger]) -> Triggers:
    """Raises PatternInvalid."""
    return Triggers(
        frozenset(trigger.token for trigger in triggers if trigger.kind == TOKEN),
        tuple(Pattern(_node(trigger)) for trigger in triggers if trigger.kind != TOKEN),
    )


def _node(trigger: GrammarTrigger) -> regex.Node:
    """A word is looked for as it is, a full pattern must fit all of the output so far."""
    if trigger.kind == WORD:
        chars = (regex.Chars(((ord(char), ord(char)),)) for char in trigger.value)
        return regex.Sequence(tuple(chars))
    node = regex.parse(trigger.value)
    if trigger.kind == PATTERN:
        return node
    start, end = regex.Anchor(is_start=True), regex.Anchor(is_start=False)
    return regex.Sequence((start, node, end))


Seen = list[tuple[int, bytes]]
"""Tokens and their bytes."""


class Watch:
    """Watches the output of one choice for a trigger."""

    def __init__(self, triggers: Triggers) -> None:
        self._tokens = triggers.tokens
        self._searches = [Search(pattern) for pattern in triggers.patterns]
        self._output: Seen = []
        self._next: tuple[int, list[Search], Seen | None] | None = None

    def look(self, token: int, piece: bytes) -> Seen | None:
        """What a token would do. None: nothing; else it triggers, and these are the tokens that the
        grammar gets to see, the first one perhaps without its beginning."""
        if token in self._tokens:
            return [(token, piece)]
        if self._next is None or self._next[0] != token:
            searches = [search.copy() for search in self._searches]
            begins = [search.feed(piece) for search in searches]
            begin = next((begin for begin in begins if begin is not None), None)
            seen = None if begin is None else _from([*self._output, (token, piece)], begin)
            self._next = token, searches, seen
        return self._next[2]

    def take(self, token: int, piece: bytes) -> None:
        """The token came, and does not trigger."""
        self.look(token, piece)
        if self._next is not None:
            self._searches = self._next[1]
        self._output.append((token, piece))
        self._next = None


def _from(output: Seen, begin: int) -> Seen:
    """What of the output begins at or after a byte."""
    found: Seen = []
    at = 0
    for token, piece in output:
        if at + len(piece) > begin:
            found.append((token, piece[max(begin - at, 0) :]))
        at += len(piece)
    return found
