"""Looks for a pattern in a text that grows, each character once.

All ways in which the pattern may match are followed side by side (Thompson's and Pike's machine), so
that no pattern can take more than linear time. Of the matches, the one that a backtracking matcher
would find first is taken.
"""

import codecs
from collections.abc import Iterator
from dataclasses import dataclass

from services.engine.grammar.charsets import CharSet, has
from services.engine.grammar.errors import PatternInvalid
from services.engine.grammar.program import UNBOUNDED
from services.engine.grammar.regex import Anchor, Capture, Chars, Choice, Node, Repetition, Sequence

MAX_STEPS = 5000
MAX_CAPTURES = 32


@dataclass(slots=True)
class Take:
    """Take a character of the set."""

    chars: CharSet


@dataclass(slots=True)
class Split:
    """Go on at one of two steps, the first one preferred."""

    first: int
    second: int


@dataclass(slots=True)
class Mark:
    """Note the place in a slot."""

    slot: int


@dataclass(slots=True)
class At:
    """Only at the text's start, or at its present end."""

    is_start: bool


@dataclass(slots=True)
class Done:
    """The pattern has matched."""


Step = Take | Split | Mark | At | Done
Marks = tuple[int, ...]
"""Places (in bytes) of the starts and ends of the groups, −1 where a group took no part."""
Thread = tuple[int, Marks]
"""Where in the pattern, and what was noted on the way."""


class Pattern:
    """A compiled pattern. Raises PatternInvalid when it is too large."""

    def __init__(self, node: Node) -> None:
        self.steps: list[Step] = []
        self.n_slots = 2
        self._compile(Capture(node, 0))
        self._add(Done())

    def _add(self, step: Step) -> int:
        if len(self.steps) >= MAX_STEPS:
            raise PatternInvalid(f"the pattern is too large: more than {MAX_STEPS} steps")
        self.steps.append(step)
        return len(self.steps) - 1

    def _compile(self, node: Node) -> None:
        match node:
            case Chars():
                self._add(Take(node.chars))
            case Anchor():
                self._add(At(node.is_start))
            case Sequence():
                for part in node.parts:
                    self._compile(part)
            case Capture():
                self._capture(node)
            case Choice():
                self._choice(node.options)
            case Repetition():
                self._repetition(node)

    def _capture(self, node: Capture) -> None:
        if node.number > MAX_CAPTURES:
            raise PatternInvalid(f"a pattern may have at most {MAX_CAPTURES} groups")
        self.n_slots = max(self.n_slots, 2 * node.number + 2)
        self._add(Mark(2 * node.number))
        self._compile(node.part)
        self._add(Mark(2 * node.number + 1))

    def _choice(self, options: tuple[Node, ...]) -> None:
        exits: list[Split] = []
        for option in options[:-1]:
            split = self._split(is_lazy=False)
            self._compile(option)
            exits.append(self._split(is_lazy=False))
            split.second = len(self.steps)
        self._compile(options[-1])
        for leave in exits:
            leave.first = leave.second = len(self.steps)

    def _split(self, *, is_lazy: bool) -> Split:
        """A split of which one side is the next step, and the other is to be set."""
        following = len(self.steps) + 1
        split = Split(0, following) if is_lazy else Split(following, 0)
        self._add(split)
        return split

    def _repetition(self, node: Repetition) -> None:
        for _ in range(node.n_min):
            self._compile(node.part)
        if node.n_max == UNBOUNDED:
            self._optional(node, is_loop=True)
            return
        skips: list[Split] = []
        for _ in range(node.n_max - node.n_min):
            skips.append(self._split(is_lazy=node.is_lazy))
            self._compile(node.part)
        for skip in skips:
            self._leave(skip, node, len(self.steps))

    def _optional(self, node: Repetition, *, is_loop: bool) -> None:
        start = len(self.steps)
        split = self._split(is_lazy=node.is_lazy)
        self._compile(node.part)
        if is_loop:
            self._add(Split(start, start))
        self._leave(split, node, len(self.steps))

    def _leave(self, split: Split, node: Repetition, target: int) -> None:
        if node.is_lazy:
            split.first = target
        else:
            split.second = target


class Search:
    """One search of a pattern in one text."""

    def __init__(self, pattern: Pattern) -> None:
        self._pattern = pattern
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._nothing = (-1,) * pattern.n_slots
        self._at = 0
        self._threads: list[Thread] = []
        self._found: Marks | None = None

    def copy(self) -> "Search":
        """One that goes on from the same place on its own."""
        other = Search(self._pattern)
        other._decoder.setstate(self._decoder.getstate())
        other._at, other._found = self._at, self._found
        other._threads = list(self._threads)
        return other

    def feed(self, data: bytes) -> int | None:
        """More of the text came, and ends here for now. Where the first match begins, in bytes: its
        first group that is not empty, else all of it. None: there is no match so far."""
        for char in self._decoder.decode(data):
            self._advance(ord(char))
            self._at += len(char.encode("utf-8", "surrogatepass"))
            self._settle()
        found = self._found or self._match_at_end()
        return None if found is None else _begin(found)

    def _advance(self, code_point: int) -> None:
        steps = self._pattern.steps
        if self._found is None:
            self._begin_here()
        moved: list[Thread] = []
        for step, marks in self._threads:
            found = steps[step]
            if isinstance(found, Take) and has(found.chars, code_point):
                moved.append((step + 1, marks))
        self._threads = moved

    def _begin_here(self) -> None:
        """The pattern may also begin at the present place, least preferred."""
        taken = {step for step, _ in self._threads}
        begun = self._closure([(0, self._nothing)], is_end=False)
        self._threads += [thread for thread in begun if thread[0] not in taken]

    def _settle(self) -> None:
        """After a character: note a match, and give up what would come after it."""
        closed: list[Thread] = []
        for step, marks in self._closure(self._threads, is_end=False):
            if isinstance(self._pattern.steps[step], Done):
                self._found = marks
                break
            closed.append((step, marks))
        self._threads = closed

    def _match_at_end(self) -> Marks | None:
        threads = [*self._threads, (0, self._nothing)]
        for step, marks in self._closure(threads, is_end=True):
            if isinstance(self._pattern.steps[step], Done):
                return marks
        return None

    def _closure(self, threads: list[Thread], *, is_end: bool) -> Iterator[Thread]:
        """The threads at their next character, end of text or match, the preferred ones first."""
        seen: set[int] = set()
        for thread in threads:
            todo = [thread]
            while todo:
                step, marks = todo.pop()
                if step in seen:
                    continue
                seen.add(step)
                match self._pattern.steps[step]:
                    case Split(first, second):
                        todo += [(second, marks), (first, marks)]
                    case Mark(slot):
                        todo.append((step + 1, (*marks[:slot], self._at, *marks[slot + 1 :])))
                    case At(is_start):
                        if (self._at == 0) if is_start else is_end:
                            todo.append((step + 1, marks))
                        elif not is_start:
                            yield step, marks
                    case _:
                        yield step, marks


def _begin(marks: Marks) -> int:
    for i in range(2, len(marks), 2):
        if 0 <= marks[i] < marks[i + 1]:
            return marks[i]
    return marks[0]
