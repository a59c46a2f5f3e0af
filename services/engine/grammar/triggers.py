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


class Watch:
    """Watches the output of one choice for a trigger."""

    def __init__(self, triggers: Triggers) -> None:
        self._tokens = triggers.tokens
        self._searches = [Search(pattern) for pattern in triggers.patterns]
        self._output: list[tuple[int, bytes]] = []

    def feed(self, token: int, piece: bytes) -> list[tuple[int, bytes]] | None:
        """A token came. None: nothing has triggered; else the tokens that the grammar gets to see,
        the first one perhaps without its beginning."""
        if token in self._tokens:
            return [(token, piece)]
        self._output.append((token, piece))
        for search in self._searches:
            begin = search.feed(piece)
            if begin is not None:
                return self._from(begin)
        return None

    def _from(self, begin: int) -> list[tuple[int, bytes]]:
        found: list[tuple[int, bytes]] = []
        at = 0
        for token, piece in self._output:
            if at + len(piece) > begin:
                found.append((token, piece[max(begin - at, 0) :]))
            at += len(piece)
        return found
