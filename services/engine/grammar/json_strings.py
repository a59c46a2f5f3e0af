"""The inside of JSON strings as GBNF: characters as they are written there."""

from dataclasses import dataclass

from services.engine.grammar.charsets import (
    CharSet,
    charset,
    complement,
    difference,
    has,
    intersection,
    of_text,
)
from services.engine.grammar.errors import PatternInvalid
from services.engine.grammar.program import UNBOUNDED
from services.engine.grammar.regex import (
    Anchor,
    Capture,
    Chars,
    Choice,
    Node,
    Repetition,
    Sequence,
    parse,
)
from services.engine.grammar.rules import either, literal, repeated, set_of

MAX_KEY_CHARS = 100
_SURROGATES: CharSet = ((0xD800, 0xDFFF),)
_ESCAPED = {'"': '"', "\\": "\\", "\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t"}
_AS_THEY_ARE = complement(charset([(0, 0x1F), *of_text('"\\\x7f'), *_SURROGATES]))
_SHORT = of_text("".join(_ESCAPED))
_PLAIN = '[^"\\\\\\x00-\\x1F\\x7F]'
_LETTERS = '["\\\\/bfnrt]'
_CODE = "([0-9a-ce-fA-CE-F] [0-9a-fA-F]{3} | [dD] [0-7] [0-9a-fA-F]{2})"
_PAIR = '[dD] [89abAB] [0-9a-fA-F]{2} "\\\\u" [dD] [c-fC-F] [0-9a-fA-F]{2}'
ANYTHING = f'({_PLAIN} | "\\\\" ({_LETTERS} | "u" ({_CODE} | {_PAIR})))'
"""One character, however it is written."""


def characters(chars: CharSet) -> str:
    """One character of a set, as an element. Raises PatternInvalid if JSON has none of them."""
    options: list[str] = []
    if plain := intersection(chars, _AS_THEY_ARE):
        options.append(set_of(plain))
    short = [letter for char, letter in _ESCAPED.items() if has(chars, ord(char))]
    if short:
        options.append(f'"\\\\" {set_of(of_text("".join(short)))}')
    others = intersection(difference(chars, _SHORT), charset([(0, 0x1F), (0x7F, 0x7F)]))
    if others and not options:
        options += [
            literal(f"\\u{code:04x}") for low, high in others for code in range(low, high + 1)
        ]
    if not options:
        raise PatternInvalid("a set in the pattern has no characters")
    return either(options) if len(options) == 1 or not plain else f"({' | '.join(options)})"


@dataclass(frozen=True, slots=True)
class Lengths:
    """How many characters a part may have; n_max None: any number."""

    n_min: int
    n_max: int | None

    def is_within(self, n_min: int, n_max: int | None) -> bool:
        is_short = n_max is None or (self.n_max is not None and self.n_max <= n_max)
        return self.n_min >= n_min and is_short


def pattern_body(pattern: str) -> tuple[str, Lengths]:
    """The characters of strings that match a pattern, and how many those are.

    As in JSON schema a pattern may match anywhere, unless it is anchored. Raises PatternInvalid.
    """
    options = [_anchored(option) for option in _top_options(parse(pattern))]
    lengths = _of_choice([length for _, length in options])
    return either([text for text, _ in options]), lengths


def _top_options(node: Node) -> list[Node]:
    """Alternatives of the whole pattern, out of their groups."""
    while isinstance(node, Capture):
        node = node.part
    if isinstance(node, Choice):
        return [option for part in node.options for option in _top_options(part)]
    return [node]


def _anchored(node: Node) -> tuple[str, Lengths]:
    parts = list(node.parts) if isinstance(node, Sequence) else [node]
    is_from_start = bool(parts) and parts[0] == Anchor(is_start=True)
    is_to_end = len(parts) > is_from_start and parts[-1] == Anchor(is_start=False)
    inner = Sequence(tuple(parts[is_from_start : len(parts) - is_to_end]))
    texts = [
        "" if is_from_start else f"{ANYTHING}*",
        _text(inner),
        "" if is_to_end else f"{ANYTHING}*",
    ]
    lengths = _lengths(inner)
    if not (is_from_start and is_to_end):
        lengths = Lengths(lengths.n_min, None)
    return "(" + " ".join(filter(None, texts)) + ")", lengths


def _text(node: Node) -> str:
    match node:
        case Chars():
            return characters(node.chars)
        case Sequence():
            return f"({' '.join(map(_text, node.parts))})" if node.parts else '""'
        case Choice():
            return either([_text(option) for option in node.options])
        case Repetition():
            n_max = None if node.n_max == UNBOUNDED else node.n_max
            return f"({repeated(_text(node.part), node.n_min, n_max)})"
        case Capture():
            return _text(node.part)
        case Anchor():
            raise PatternInvalid("`^` and `$` are only supported around a whole pattern")


def _lengths(node: Node) -> Lengths:
    match node:
        case Chars():
            return Lengths(1, 1)
        case Sequence():
            return _of_sequence([_lengths(part) for part in node.parts])
        case Choice():
            return _of_choice([_lengths(option) for option in node.options])
        case Repetition():
            return _of_repetition(_lengths(node.part), node.n_min, node.n_max)
        case Capture():
            return _lengths(node.part)
        case Anchor():
            return Lengths(0, 0)


def _of_sequence(parts: list[Lengths]) -> Lengths:
    maxima = [part.n_max for part in parts]
    n_max = None if None in maxima else sum(n for n in maxima if n is not None)
    return Lengths(sum(part.n_min for part in parts), n_max)


def _of_choice(options: list[Lengths]) -> Lengths:
    maxima = [option.n_max for option in options]
    n_max = None if None in maxima else max(n for n in maxima if n is not None)
    return Lengths(min(option.n_min for option in options), n_max)


def _of_repetition(part: Lengths, n_min: int, n_max: int) -> Lengths:
    most = None if n_max == UNBOUNDED or part.n_max is None else part.n_max * n_max
    return Lengths(part.n_min * n_min, 0 if part.n_max == 0 else most)


def other_keys(names: list[str]) -> str:
    """The inside of keys that are none of these names; without escapes that would spell them anew.

    Raises ValueError for names that are too long.
    """
    if any(len(name) > MAX_KEY_CHARS for name in names):
        raise ValueError(f"names of more than {MAX_KEY_CHARS} characters cannot be excluded")
    tree: _Tree = {}
    for name in names:
        at = tree
        for unit in _units(name):
            at = at.setdefault(unit, {})
        at[_END] = {}
    return _other(tree)


_END = ""
_KEY_CHAR = f'({_PLAIN} | "\\\\" ["\\\\bfnrt])'
_Tree = dict[str, "_Tree"]


def _units(name: str) -> list[str]:
    """The characters of a name as JSON writes them."""
    escaped = {char: "\\" + letter for char, letter in _ESCAPED.items()}
    return [escaped.get(char, char) for char in name]


def _other(tree: _Tree) -> str:
    """What may follow here so that no name of the tree comes out."""
    options = [] if _END in tree else ['""']
    for unit, below in tree.items():
        if unit != _END:
            options.append(
                f"{literal(unit)} {_other(below)}"
                if below.keys() != {_END}
                else f"{literal(unit)} {_KEY_CHAR}+"
            )
    return "(" + " | ".join([*options, f"{_unlike(tree)} {_KEY_CHAR}*"]) + ")"


def _unlike(tree: _Tree) -> str:
    """A character that begins no branch of the tree."""
    plain = charset((ord(unit), ord(unit)) for unit in tree if len(unit) == 1)
    letters = [unit[1] for unit in tree if len(unit) == 2]
    escapes = difference(of_text("".join(_ESCAPED.values())), of_text("".join(letters)))
    options = [set_of(difference(_AS_THEY_ARE, plain))]
    if escapes:
        options.append(f'"\\\\" {set_of(escapes)}')
    return either(options)
