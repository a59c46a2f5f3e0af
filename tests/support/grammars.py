"""Following grammars in tests: what they accept, and random texts of theirs."""

import json
import random

from services.engine.grammar.automaton import Automaton, State
from services.engine.grammar.gbnf import parse
from services.engine.grammar.json_schema import to_grammar

PLENTY = 10_000_000
CLOSERS = b'"}]'


def follow(grammar: str, text: str | bytes) -> State | None:
    """The state after a text; None where the grammar does not allow it."""
    automaton = Automaton(parse(grammar))
    automaton.limit = PLENTY
    return automaton.feed(automaton.start, text if isinstance(text, bytes) else text.encode())


def matches(grammar: str, text: str | bytes) -> bool:
    """Whether a text is complete."""
    state = follow(grammar, text)
    return state is not None and state.can_end


def allows(schema: object, value: object) -> bool:
    """Whether a schema's grammar allows a value, written compactly."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return matches(to_grammar(schema), text)


def random_text(grammar: str, seed: int, n_bytes: int = 80) -> str | None:
    """A text of the grammar, at random; it aims at an end from `n_bytes` on. None: found none."""
    automaton, rnd = Automaton(parse(grammar)), random.Random(seed)
    state, written = automaton.start, bytearray()
    while len(written) < 20 * n_bytes:
        automaton.limit = automaton.work + PLENTY
        options = [byte for byte in range(256) if automaton.step(state, byte) is not None]
        if state.can_end and (not options or len(written) > n_bytes or rnd.random() < 0.3):
            return written.decode()
        if not options:
            return None
        is_late = len(written) > n_bytes and rnd.random() < 0.8
        byte = rnd.choice([b for b in options if b in CLOSERS] * is_late or _mixed(options, rnd))
        written.append(byte)
        after = automaton.step(state, byte)
        assert after is not None
        state = after
    return None


def _mixed(options: list[int], rnd: random.Random) -> list[int]:
    """Plain ASCII more often than not, since most bytes begin characters of other scripts."""
    plain = [byte for byte in options if 0x20 < byte < 0x7F]
    return plain if plain and rnd.random() < 0.8 else options
