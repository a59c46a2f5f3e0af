"""Writing GBNF: named rules, and texts and sets as its elements."""

import re

from services.engine.grammar.charsets import CharSet
from services.engine.grammar.errors import SchemaInvalid

MAX_GRAMMAR_CHARS = 256 * 1024
MAX_RULES = 20_000
MAX_NAME_CHARS = 48
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9]+")
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_SET_ESCAPES = {
    "\\": "\\\\",
    "[": "\\[",
    "]": "\\]",
    "-": "\\-",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
}


class Rules:
    """Rules by name, in the order in which they were named. Raises SchemaInvalid when they are too many."""

    def __init__(self) -> None:
        self._bodies: dict[str, str] = {}
        self._n_chars = 0
        self._n_of_hint: dict[str, int] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._bodies

    def reserve(self, hint: str) -> str:
        """A new name like `hint`, whose body is to be set."""
        base = _NOT_IN_NAMES.sub("-", hint)[:MAX_NAME_CHARS].strip("-") or "rule"
        name, n = base, self._n_of_hint.get(base, 0)
        while name in self._bodies:
            n += 1
            name = f"{base}-{n}"
        self._n_of_hint[base] = n
        self.set(name, "")
        return name

    def add(self, hint: str, body: str) -> str:
        """The name of a new rule."""
        name = self.reserve(hint)
        self.set(name, body)
        return name

    def set(self, name: str, body: str) -> None:
        self._n_chars += len(name) + len(body) + 6 - len(self._bodies.get(name, ""))
        self._bodies[name] = body
        if len(self._bodies) > MAX_RULES or self._n_chars > MAX_GRAMMAR_CHARS:
            raise SchemaInvalid(
                f"the schema is too large: its grammar has more than {MAX_RULES} rules or "
                f"{MAX_GRAMMAR_CHARS} characters"
            )

    def text(self) -> str:
        return "".join(f"{name} ::= {body}\n" for name, body in self._bodies.items())


def literal(text: str) -> str:
    """A text as a GBNF literal."""
    return '"' + "".join(_ESCAPES.get(char) or _visible(char) for char in text) + '"'


def set_of(chars: CharSet) -> str:
    """A set as GBNF writes it."""
    return "[" + "".join(_range(low, high) for low, high in chars) + "]"


def _range(low: int, high: int) -> str:
    if low == high:
        return _in_set(low)
    return _in_set(low) + ("" if high == low + 1 else "-") + _in_set(high)


def _in_set(code_point: int) -> str:
    char = chr(code_point)
    return "\\x5E" if char == "^" else _SET_ESCAPES.get(char) or _visible(char)


def _visible(char: str) -> str:
    """A character, written as a number where it could not be read."""
    code_point = ord(char)
    if 0x20 <= code_point < 0x7F or (char.isprintable() and code_point < 0xD800):
        return char
    if code_point < 0x100:
        return f"\\x{code_point:02X}"
    return f"\\u{code_point:04X}" if code_point < 0x10000 else f"\\U{code_point:08X}"


def repeated(item: str, n_min: int, n_max: int | None) -> str:
    """An element (a name, a group, a set or a literal) so many times; n_max None: any number."""
    if n_max == 0:
        return '""'
    if n_max is None and n_min < 2:
        return item + "*+"[n_min]
    if n_max == 1:
        return item if n_min else item + "?"
    if n_min == n_max:
        return f"{item}{{{n_min}}}"
    return f"{item}{{{n_min},{'' if n_max is None else n_max}}}"


def either(options: list[str]) -> str:
    """Alternatives as one element."""
    return options[0] if len(options) == 1 else "(" + " | ".join(options) + ")"
