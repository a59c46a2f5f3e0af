"""Regular expressions (the common part of ECMAScript's) as trees.

What only a backtracking matcher could do (look-around, back references, word boundaries) is refused.
"""

import re
from dataclasses import dataclass
from typing import NoReturn

from services.engine.grammar.charsets import (
    MAX_CODE_POINT,
    CharSet,
    Range,
    charset,
    complement,
    of_text,
)
from services.engine.grammar.errors import PatternInvalid
from services.engine.grammar.program import UNBOUNDED

MAX_CHARS = 16_384
MAX_DEPTH = 50
MAX_COUNT = 1_000_000

_DIGITS = charset([(0x30, 0x39)])
_WORD = charset([(0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)])
_SPACE = of_text("\t\n\v\f\r ")
_ALL_SPACE = charset([*_SPACE, *of_text("\xa0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff")])
_CLASSES = {
    "d": _DIGITS,
    "D": complement(_DIGITS),
    "w": _WORD,
    "W": complement(_WORD),
    "s": _SPACE,
    "S": complement(charset([*_ALL_SPACE, (0x2000, 0x200A)])),
}
_CONTROLS = {"t": 9, "n": 10, "v": 11, "f": 12, "r": 13, "0": 0}
ANY = complement(of_text("\n\r\u2028\u2029"))
"""What `.` stands for."""
_HEX = re.compile(r"x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|u\{([0-9a-fA-F]{1,6})\}")
_COUNT = re.compile(r"\{(\d{1,9})(?:(,)(\d{1,9})?)?\}", re.ASCII)
_NAME = re.compile(r"\?<[A-Za-z_]\w*>", re.ASCII)


@dataclass(frozen=True, slots=True)
class Chars:
    """One character out of a set."""

    chars: CharSet


@dataclass(frozen=True, slots=True)
class Sequence:
    parts: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class Choice:
    """The first alternative that leads on."""

    options: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class Repetition:
    """n_max UNBOUNDED: any number. is_lazy: as few as possible."""

    part: "Node"
    n_min: int
    n_max: int
    is_lazy: bool = False


@dataclass(frozen=True, slots=True)
class Capture:
    """A capturing group; number: from 1."""

    part: "Node"
    number: int


@dataclass(frozen=True, slots=True)
class Anchor:
    """The start (`^`) or the end (`$`) of the text."""

    is_start: bool


Node = Chars | Sequence | Choice | Repetition | Capture | Anchor


def parse(pattern: str) -> Node:
    """The tree of a pattern. Raises PatternInvalid."""
    if len(pattern) > MAX_CHARS:
        raise PatternInvalid(f"a pattern may have at most {MAX_CHARS} characters")
    parser = _Parser(pattern)
    node = parser.choice(0)
    if parser.at < len(pattern):
        raise PatternInvalid("a `)` without a `(` before it")
    return node


class _Parser:
    """Recursive descent, no deeper than MAX_DEPTH."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self.at = 0
        self._n_captures = 0

    def choice(self, depth: int) -> Node:
        options = [self._sequence(depth)]
        while self._take("|"):
            options.append(self._sequence(depth))
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def _sequence(self, depth: int) -> Node:
        parts: list[Node] = []
        while self.at < len(self._pattern) and self._pattern[self.at] not in "|)":
            parts.append(self._counted(self._atom(depth)))
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _take(self, text: str) -> bool:
        if not self._pattern.startswith(text, self.at):
            return False
        self.at += len(text)
        return True

    def _fail(self, message: str) -> NoReturn:
        raise PatternInvalid(f"{message} (at character {self.at})")

    # -- atoms

    def _atom(self, depth: int) -> Node:
        char = self._pattern[self.at]
        if char in "*+?" or (char == "{" and _COUNT.match(self._pattern, self.at)):
            self._fail("there is nothing to repeat")
        self.at += 1
        match char:
            case "(":
                return self._group(depth)
            case "[":
                return Chars(self._set())
            case ".":
                return Chars(ANY)
            case "^" | "$":
                return Anchor(is_start=char == "^")
            case "\\":
                return Chars(self._escape())
            case _:
                return Chars(_one(ord(char)))

    def _group(self, depth: int) -> Node:
        if depth >= MAX_DEPTH:
            self._fail(f"groups are nested deeper than {MAX_DEPTH} levels")
        is_capture = not self._take("?:")
        if is_capture and (name := _NAME.match(self._pattern, self.at)):
            self.at = name.end()
        elif is_capture and self._take("?"):
            self._fail("look-around and inline flags are not supported")
        number = self._n_captures = self._n_captures + is_capture
        inner = self.choice(depth + 1)
        if not self._take(")"):
            self._fail("a group is never closed with `)`")
        return Capture(inner, number) if is_capture else inner

    def _escape(self) -> CharSet:
        """What stands behind a backslash."""
        if self.at >= len(self._pattern):
            self._fail("a backslash with nothing behind it")
        char = self._pattern[self.at]
        if hexadecimal := _HEX.match(self._pattern, self.at):
            self.at = hexadecimal.end()
            return _one(self._code_point(hexadecimal))
        self.at += 1
        if char in _CLASSES:
            return _CLASSES[char]
        if char in _CONTROLS:
            return _one(_CONTROLS[char])
        if char.isalnum():
            self._fail(f"`\\{char}` is not supported")
        return _one(ord(char))

    def _code_point(self, found: "re.Match[str]") -> int:
        code_point = int(found.group(1) or found.group(2) or found.group(3), 16)
        if code_point > MAX_CODE_POINT:
            self._fail("there is no such character")
        return code_point

    def _set(self) -> CharSet:
        is_negated = self._take("^")
        ranges: list[Range] = []
        while not self._take("]"):
            if self.at >= len(self._pattern):
                self._fail("a set is never closed with `]`")
            ranges += self._range()
        chars = charset(ranges)
        return complement(chars) if is_negated else chars

    def _range(self) -> CharSet:
        low = self._member()
        following = self._pattern[self.at : self.at + 2]
        if not following.startswith("-") or following in ("-", "-]") or not _is_one(low):
            return low
        self.at += 1
        high = self._member()
        if not _is_one(high):
            return charset([*low, *_one(ord("-")), *high])
        if low[0][0] > high[0][0]:
            self._fail("a range runs backwards")
        return ((low[0][0], high[0][0]),)

    def _member(self) -> CharSet:
        self.at += 1
        char = self._pattern[self.at - 1]
        if char != "\\":
            return _one(ord(char))
        if self._take("b"):
            return _one(8)
        return self._escape()

    # -- repetitions

    def _counted(self, atom: Node) -> Node:
        count = self._count()
        if count is None:
            return atom
        if isinstance(atom, Anchor):
            self._fail("there is nothing to repeat")
        is_lazy = self._take("?")
        if self._pattern.startswith(("*", "+", "?"), self.at) or _COUNT.match(
            self._pattern, self.at
        ):
            self._fail("there is nothing to repeat")
        return Repetition(atom, *count, is_lazy)

    def _count(self) -> tuple[int, int] | None:
        for sign, count in (("*", (0, UNBOUNDED)), ("+", (1, UNBOUNDED)), ("?", (0, 1))):
            if self._take(sign):
                return count
        found = _COUNT.match(self._pattern, self.at)
        if found is None:
            return None
        self.at = found.end()
        low, comma, high = found.groups()
        n_min = int(low)
        n_max = n_min if comma is None else int(high) if high else UNBOUNDED
        if max(n_min, n_max) > MAX_COUNT or 0 <= n_max < n_min:
            self._fail(f"the count {found.group()} is not possible")
        return n_min, n_max


def _one(code_point: int) -> CharSet:
    return ((code_point, code_point),)


def _is_one(chars: CharSet) -> bool:
    return len(chars) == 1 and chars[0][0] == chars[0][1]
