"""A parsed grammar: rules as chains of positions.

A position is one element of one alternative: a character out of a set, a rule, a repetition of a
rule, or a token. Repetitions are kept as counts and never written out, so that `{0,1000000}` costs
no more than `*`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from services.engine.grammar.charsets import CharSet

END = -1
"""No further position: the alternative ends."""
CHARS, RULE, REPEAT, TOKEN, NOT_TOKEN = range(5)
UNBOUNDED = -1
MANY = 8
"""Alternatives, from which on it is worth while to look for common beginnings."""


@dataclass(frozen=True, slots=True)
class Item:
    """One element before it has its place. value: index of a set, of a rule, of a repetition, or a
    token id, by kind."""

    kind: int
    value: int


@dataclass(frozen=True, slots=True)
class Repeat:
    """A rule, at least n_min and at most n_max times (UNBOUNDED: any number)."""

    rule: int
    n_min: int
    n_max: int


@dataclass(kw_only=True, slots=True)
class Program:
    """kinds, values, nexts: by position. alternatives: by rule, where each begins (END: empty).
    root: the rule that the output must match."""

    kinds: list[int] = field(default_factory=list[int])
    values: list[int] = field(default_factory=list[int])
    nexts: list[int] = field(default_factory=list[int])
    sets: list[CharSet] = field(default_factory=list[CharSet])
    repeats: list[Repeat] = field(default_factory=list[Repeat])
    alternatives: list[tuple[int, ...]] = field(default_factory=list[tuple[int, ...]])
    root: int = 0

    @property
    def has_tokens(self) -> bool:
        """Whether any element is a token rather than text."""
        return TOKEN in self.kinds or NOT_TOKEN in self.kinds

    def add_rule(self) -> int:
        """Make room for a rule, to be defined later."""
        self.alternatives.append(())
        return len(self.alternatives) - 1

    def define(self, rule: int, alternatives: Sequence[Sequence[Item]]) -> None:
        """Give a rule its alternatives, each a sequence of items.

        Where many begin alike, their common beginning is followed once.
        """
        todo = [(rule, alternatives)]
        while todo:
            rule, options = todo.pop()
            if len(options) >= MANY:
                options = self._factored(options, todo)
            self.alternatives[rule] = tuple(self._chain(items) for items in options)

    def add_repeat(self, rule: int, n_min: int, n_max: int) -> Item:
        """A repetition of a rule, as an item."""
        self.repeats.append(Repeat(rule, n_min, n_max))
        return Item(REPEAT, len(self.repeats) - 1)

    def _factored(
        self, options: Sequence[Sequence[Item]], todo: list[tuple[int, Sequence[Sequence[Item]]]]
    ) -> list[Sequence[Item]]:
        """Alternatives that differ in their first character; what follows goes into rules to do."""
        found: list[Sequence[Item]] = []
        groups: dict[Item, list[Sequence[Item]]] = {}
        for items in options:
            if items and items[0].kind == CHARS:
                groups.setdefault(items[0], []).append(items)
            else:
                found.append(items)
        for group in groups.values():
            n = _n_common(group) if len(group) > 1 else 0
            if n:
                rest = self.add_rule()
                found.append([*group[0][:n], Item(RULE, rest)])
                todo.append((rest, [items[n:] for items in group]))
            else:
                found += group
        return found

    def _chain(self, items: Sequence[Item]) -> int:
        if not items:
            return END
        start = len(self.kinds)
        for item in items:
            self.kinds.append(item.kind)
            self.values.append(item.value)
            self.nexts.append(len(self.nexts) + 1)
        self.nexts[-1] = END
        return start


def _n_common(group: Sequence[Sequence[Item]]) -> int:
    """Items that all sequences begin with."""
    first, last = group[0], group[-1]
    n = min(len(items) for items in group)
    for i in range(n):
        if first[i] != last[i] or any(items[i] != first[i] for items in group):
            return i
    return n
