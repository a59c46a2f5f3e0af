"""GBNF text as a `Program`.

Takes what llama.cpp's parser takes (its `grammars/README.md`), in linear time and without recursion.
Where llama.cpp crashes, hangs or gives up (deep nesting, `{3,2}`, rules that call themselves before
they consume anything), GrammarInvalid says where.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NoReturn

from services.engine.grammar.charsets import (
    EVERYTHING,
    MAX_CODE_POINT,
    CharSet,
    Range,
    charset,
    complement,
)
from services.engine.grammar.errors import GrammarInvalid
from services.engine.grammar.program import (
    CHARS,
    NOT_TOKEN,
    RULE,
    TOKEN,
    UNBOUNDED,
    Item,
    Program,
)
from services.engine.grammar.recursion import find_left_recursion

MAX_CHARS = 512 * 1024
MAX_DEPTH = 256
MAX_ITEMS = 300_000
MAX_COUNT_DIGITS = 9
ROOT = "root"

TokenLookup = Callable[[str], int | None]
"""From a token's text, brackets included (`<think>`), to its id; None if it is no single token."""

_LEXEME = re.compile(
    r"""
      (?P<space>(?:[ \t]+|\#[^\r\n]*)+)
    | (?P<newline>\r\n|\r|\n)
    | (?P<define>::=)
    | (?P<name>[a-zA-Z0-9-]+)
    | (?P<literal>"(?:[^"\\]|\\.)*+")
    | (?P<set>\[\^?(?:[^\]\\]|\\.)*+\])
    | (?P<count>\{[^{}]*+\})
    | (?P<token>!?<[^>\r\n]*+>)
    | (?P<mark>[|().*+?])
    """,
    re.VERBOSE | re.DOTALL,
)
_CHAR = re.compile(
    r"\\x([0-9a-fA-F]{2})|\\u([0-9a-fA-F]{4})|\\U([0-9a-fA-F]{8})|\\(.)|([^\\])", re.DOTALL
)
_COUNT = re.compile(r"\{\s*(\d+)\s*(?:(,)\s*(\d+)?\s*)?\}", re.ASCII)
_TOKEN_ID = re.compile(r"!?<\[(\d{1,10})\]>", re.ASCII)
_ESCAPES = {"t": 9, "r": 13, "n": 10} | {char: ord(char) for char in '\\"[]-'}
_MARK_COUNTS = {"*": (0, UNBOUNDED), "+": (1, UNBOUNDED), "?": (0, 1)}


def parse(text: str, find_token: TokenLookup | None = None) -> Program:
    """A grammar whose root is the rule `root`. find_token: for `<…>` elements, which are refused
    without it. Raises GrammarInvalid."""
    if len(text) > MAX_CHARS:
        raise GrammarInvalid(f"a grammar may have at most {MAX_CHARS} characters")
    return _Parser(text, find_token).run()


@dataclass(slots=True)
class _Group:
    """An open group or a rule's body. symbol: where the last symbol begins, which a count repeats;
    −1 when there is none. at: its place in the text."""

    rule: int
    at: int
    alternatives: list[list[Item]] = field(default_factory=list[list[Item]])
    items: list[Item] = field(default_factory=list[Item])
    symbol: int = -1

    def add(self, items: list[Item]) -> None:
        self.symbol = len(self.items) if items else -1
        self.items += items

    def next_alternative(self) -> None:
        self.alternatives.append(self.items)
        self.items, self.symbol = [], -1


class _Parser:
    def __init__(self, text: str, find_token: TokenLookup | None) -> None:
        self._text = text
        self._find_token = find_token
        self._program = Program()
        self._rules: dict[str, int] = {}
        self._defined: set[int] = set()
        self._used_at: dict[int, int] = {}
        self._sets: dict[CharSet, Item] = {}
        self._n_items = 0
        self._at = 0
        self._kind = ""
        self._lexeme = ""

    def run(self) -> Program:
        self._next()
        while True:
            self._skip_newlines()
            if not self._kind:
                break
            self._rule()
        self._check_rules()
        return self._program

    # -- lexemes

    def _next(self) -> None:
        """Go to the next lexeme; its kind is empty at the end. Spaces and comments are skipped."""
        at = self._at + len(self._lexeme)
        match = _LEXEME.match(self._text, at)
        if match is not None and match.lastgroup == "space":
            at = match.end()
            match = _LEXEME.match(self._text, at)
        self._at = at
        if match is not None:
            self._kind, self._lexeme = match.lastgroup or "", match.group()
        elif at < len(self._text):
            self._fail(_what_is_wrong(self._text, at))
        else:
            self._kind = self._lexeme = ""

    def _skip_newlines(self) -> None:
        while self._kind == "newline":
            self._next()

    def _fail(self, message: str, at: int = -1) -> NoReturn:
        at = self._at if at < 0 else at
        before = self._text[:at]
        line = before.count("\n") + 1
        raise GrammarInvalid(message, line=line, column=at - before.rfind("\n"))

    # -- rules

    def _rule(self) -> None:
        at, name = self._at, self._expect("name", "expected the name of a rule")
        rule = self._rule_of(name, at)
        self._expect("define", "expected `::=` after the name of a rule")
        self._skip_newlines()
        self._defined.add(rule)
        self._body(_Group(rule, at))

    def _expect(self, kind: str, message: str) -> str:
        """Step over a lexeme of this kind."""
        if self._kind != kind:
            self._fail(message)
        lexeme = self._lexeme
        self._next()
        return lexeme

    def _rule_of(self, name: str, at: int) -> int:
        if name not in self._rules:
            self._rules[name] = self._program.add_rule()
            self._used_at[self._rules[name]] = at
        return self._rules[name]

    def _body(self, body: _Group) -> None:
        """A rule's alternatives, up to the line's end outside of all groups."""
        groups = [body]
        while self._kind and (self._kind != "newline" or len(groups) > 1):
            self._element(groups)
            self._next()
        if len(groups) > 1:
            self._fail("this group is never closed with `)`", groups[-1].at)
        self._close(body)

    def _element(self, groups: list[_Group]) -> None:
        group = groups[-1]
        match self._kind:
            case "literal":
                self._add(group, [self._char_item(char) for char in self._chars(self._lexeme)])
            case "set":
                self._add(group, self._set())
            case "name":
                self._add(group, [Item(RULE, self._rule_of(self._lexeme, self._at))])
            case "token":
                self._add(group, [self._token()])
            case "count":
                self._repeat(group, *self._count())
            case "mark":
                self._mark(groups)
            case "define":
                self._fail("`::=` inside of a rule: rules end with a line")
            case _:
                pass

    def _mark(self, groups: list[_Group]) -> None:
        group = groups[-1]
        match self._lexeme:
            case "(":
                if len(groups) > MAX_DEPTH:
                    self._fail(f"groups are nested deeper than {MAX_DEPTH} levels")
                groups.append(_Group(self._program.add_rule(), self._at))
            case ")":
                self._end_group(groups)
            case "|":
                group.next_alternative()
                self._skip_following_newlines()
            case ".":
                self._add(group, [self._set_item(EVERYTHING)])
            case sign:
                self._repeat(group, *_MARK_COUNTS[sign])

    def _end_group(self, groups: list[_Group]) -> None:
        if len(groups) == 1:
            self._fail("`)` without a `(` before it")
        group = groups.pop()
        self._close(group)
        self._add(groups[-1], [Item(RULE, group.rule)])

    def _skip_following_newlines(self) -> None:
        """After `|` a rule goes on in the next line: step up to the lexeme before what follows."""
        while (match := _LEXEME.match(self._text, self._at + len(self._lexeme))) is not None:
            if match.lastgroup not in ("space", "newline"):
                return
            self._at, self._lexeme = match.start(), match.group()

    def _close(self, group: _Group) -> None:
        group.next_alternative()
        self._program.define(group.rule, group.alternatives)

    def _add(self, group: _Group, items: list[Item]) -> None:
        self._n_items += len(items) + 1
        if self._n_items > MAX_ITEMS:
            self._fail(f"a grammar may have at most {MAX_ITEMS} elements")
        group.add(items)

    # -- elements

    def _chars(self, lexeme: str) -> list[int]:
        """Code points of a literal."""
        inner = lexeme[1:-1]
        if "\\" not in inner:
            return [ord(char) for char in inner]
        return [code_point for code_point, _ in self._escaped(inner)]

    def _escaped(self, inner: str) -> list[tuple[int, bool]]:
        """Code points, and whether each was escaped."""
        found: list[tuple[int, bool]] = []
        at = 0
        while at < len(inner):
            match = _CHAR.match(inner, at)
            if match is None:
                self._fail("a backslash with nothing behind it")
            found.append((self._code_point(match), match.group(5) is None))
            at = match.end()
        return found

    def _code_point(self, match: "re.Match[str]") -> int:
        plain, escape = match.group(5), match.group(4)
        if plain is not None:
            return ord(plain)
        if escape is not None:
            if escape not in _ESCAPES:
                self._fail(f"unknown escape `\\{escape}`")
            return _ESCAPES[escape]
        code_point = int(match.group(1) or match.group(2) or match.group(3), 16)
        if code_point > MAX_CODE_POINT:
            self._fail(f"there is no character {match.group()}")
        return code_point

    def _char_item(self, code_point: int) -> Item:
        return self._set_item(((code_point, code_point),))

    def _set_item(self, chars: CharSet) -> Item:
        item = self._sets.get(chars)
        if item is None:
            item = self._sets[chars] = Item(CHARS, len(self._program.sets))
            self._program.sets.append(chars)
        return item

    def _set(self) -> list[Item]:
        """A set such as `[^a-z]`; an empty one stands for nothing, as in llama.cpp."""
        is_negated = self._lexeme.startswith("[^")
        inner = self._lexeme[2 if is_negated else 1 : -1]
        ranges = self._ranges(self._escaped(inner))
        if not ranges:
            return []
        chars = charset(ranges)
        return [self._set_item(complement(chars) if is_negated else chars)]

    def _ranges(self, chars: list[tuple[int, bool]]) -> list[Range]:
        found: list[Range] = []
        i = 0
        while i < len(chars):
            low = high = chars[i][0]
            if i + 2 < len(chars) and chars[i + 1] == (ord("-"), False):
                high = chars[i + 2][0]
                i += 2
            if low > high:
                self._fail(f"the range {chr(low)!r}-{chr(high)!r} is empty")
            found.append((low, high))
            i += 1
        return found

    def _token(self) -> Item:
        kind = NOT_TOKEN if self._lexeme.startswith("!") else TOKEN
        by_id = _TOKEN_ID.fullmatch(self._lexeme)
        if by_id is not None:
            return Item(kind, int(by_id.group(1)))
        if self._lexeme.startswith(("<[", "!<[")):
            self._fail("expected a token's id, as in `<[42]>`")
        text = self._lexeme.removeprefix("!")
        token = self._find_token(text) if self._find_token is not None else None
        if token is None:
            self._fail(f"`{text}` is not a token of this model")
        return Item(kind, token)

    def _count(self) -> tuple[int, int]:
        match = _COUNT.fullmatch(self._lexeme)
        if match is None:
            self._fail("expected `{n}`, `{n,}` or `{n,m}`")
        low, comma, high = match.groups()
        if max(len(low), len(high or "")) > MAX_COUNT_DIGITS:
            self._fail(f"a count may have at most {MAX_COUNT_DIGITS} digits")
        n_min = int(low)
        n_max = n_min if comma is None else int(high) if high else UNBOUNDED
        if 0 <= n_max < n_min:
            self._fail(f"`{self._lexeme}` asks for more than it allows")
        return n_min, n_max

    def _repeat(self, group: _Group, n_min: int, n_max: int) -> None:
        if group.symbol < 0:
            self._fail("there is nothing to repeat")
        symbol = group.items[group.symbol :]
        del group.items[group.symbol :]
        if n_max == 0:
            return  # nothing is left, and a further count repeats that
        if len(symbol) == 1 and symbol[0].kind == RULE:
            rule = symbol[0].value
        else:
            rule = self._program.add_rule()
            self._program.define(rule, [symbol])
        self._n_items += 1
        group.items.append(self._program.add_repeat(rule, n_min, n_max))

    # -- the whole

    def _check_rules(self) -> None:
        for name, rule in self._rules.items():
            if rule not in self._defined:
                self._fail(f"the rule `{name}` is not defined", self._used_at[rule])
        if ROOT not in self._rules:
            raise GrammarInvalid(f"there is no rule `{ROOT}`")
        self._program.root = self._rules[ROOT]
        culprit = find_left_recursion(self._program)
        if culprit is not None:
            self._fail_recursion(culprit)

    def _fail_recursion(self, cycle: list[int]) -> NoReturn:
        named = {rule: name for name, rule in self._rules.items()}
        rule = next((rule for rule in cycle if rule in named), None)
        if rule is None:
            raise GrammarInvalid(
                "a group calls itself before anything is consumed (left recursion)"
            )
        message = f"the rule `{named[rule]}` calls itself before anything is consumed"
        self._fail(f"{message} (left recursion)", self._used_at[rule])


def _what_is_wrong(text: str, at: int) -> str:
    openers = {
        '"': 'this literal is never closed with `"`',
        "[": "this set is never closed with `]`",
    }
    openers |= {
        "{": "this count is never closed with `}`",
        "<": "this token is never closed with `>`",
    }
    return openers.get(text[at], f"unexpected {text[at]!r}")
