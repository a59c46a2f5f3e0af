"""Which tokens of a vocabulary a grammar allows: the quick way equals trying each."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.params import GrammarTrigger
from services.engine.grammar.automaton import Automaton
from services.engine.grammar.constraint import Constraint, Grammar, Grammars, LazyConstraint
from services.engine.grammar.errors import GrammarTooComplex, TokenRefused
from services.engine.grammar.gbnf import parse
from services.engine.grammar.tokens import TokenTable
from services.engine.grammar.triggers import compile_triggers

END, THINK = 0, 1
WORDS = [
    "a",
    "b",
    "ab",
    "aba",
    '"',
    '",',
    '{"',
    "x",
    "xx",
    "xxx",
    " ",
    "  ",
    "\n",
    "1",
    "12",
    "é",
    "日本",
]
BYTES = [bytes([byte]) for byte in range(256)]
PIECES = [
    b"</s>",
    b"<think>",
    b"",
    *(word.encode() for word in WORDS),
    *BYTES,
    b"a\x00",
    b"\xe6\x97",
    b"\xa5x",
]
PIECES += [bytes([a, b]) for a in b'abcxyz"\\1 ' for b in b'abcxyz"\\1 '] * 3
PIECES += [b"x" * 20, b"a" * 17, b"a" * 30]
TABLE = TokenTable(PIECES, [END])
GRAMMARS = [
    'root ::= "\\"" [^"\\\\\\x00-\\x1f]* "\\"" [a-z]*',
    'root ::= [ab]{2,4} ("x" | "xx")* "é"?',
    "root ::= [日é]+ [0-9]{1,3}",
    'root ::= .{3,} "\\n"',
    'root ::= "x"{0,25} ("a"{2,19} "b" | "a"{18,40})* [ab]{17}',
]
"""With strings, in which most bytes lead back, and without."""


def constraint(grammar: str, hidden: tuple[int, ...] = (THINK,)) -> Constraint:
    program = parse(grammar, {"<think>": THINK}.get)
    return Constraint(Grammar(program, TABLE), hidden)


@pytest.mark.parametrize("grammar", GRAMMARS)
@given(st.lists(st.integers(0, 10_000), max_size=8))
@settings(max_examples=25, deadline=None)
def test_allowed_are_those_that_are_allowed_one_by_one(grammar: str, path: list[int]) -> None:
    at = constraint(grammar)
    for number in [*path, 0]:
        allowed = at.allowed().tolist()
        assert allowed == [token for token in range(len(PIECES)) if at.allows(token)]
        if not allowed or allowed == [END]:
            return
        at.accept(allowed[number % len(allowed)])


ODD_BYTES = st.sampled_from([0, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC2])
ODD_BYTES |= st.sampled_from([0xDF, 0xE0, 0xE1, 0xED, 0xEE, 0xEF, 0xF0, 0xF1, 0xF4, 0xF5, 0xFF])


@given(st.lists(ODD_BYTES, max_size=5).map(bytes))
@settings(max_examples=500, deadline=None)
def test_bytes_that_are_no_text_are_never_allowed(data: bytes) -> None:
    automaton = Automaton(parse("root ::= .*"))
    state = automaton.feed(automaton.start, data)
    try:
        data.decode()
        is_text = True
    except UnicodeDecodeError as error:
        is_text = error.reason == "unexpected end of data"
    assert (state is not None) == is_text


def test_an_end_is_allowed_where_the_text_is_complete() -> None:
    at = constraint('root ::= "ab" "x"?')
    assert not at.allows(END)
    with pytest.raises(TokenRefused):
        at.accept(END)
    at.accept(PIECES.index(b"ab"))
    assert at.can_end
    assert set(at.allowed().tolist()) == {
        END,
        *(i for i, piece in enumerate(PIECES) if piece == b"x"),
    }
    at.accept(PIECES.index(b"x"))
    assert at.allowed().tolist() == [END]
    at.accept(END)


def test_what_is_not_shown_does_not_count_as_text() -> None:
    shown, hidden = constraint('root ::= "<think>"', ()), constraint('root ::= "<think>"')
    named = constraint('root ::= <think> "a"')
    assert shown.allows(THINK)
    assert not hidden.allows(THINK)
    assert named.allowed().tolist() == [THINK]
    named.accept(THINK)
    assert named.allows(PIECES.index(b"a"))


@pytest.mark.parametrize(
    "elements",
    [
        "<[5]> !<[6]>",
        "(<[5]> | !<[6]> | !<[7]>)",
        "(!<[6]> | <[6]>)",
        "<[99999]>",
        "(<[5]> | [ab])",
    ],
)
def test_named_tokens_are_those_that_are_allowed_one_by_one(elements: str) -> None:
    at = constraint(f"root ::= {elements} <[0]>?")
    for _ in range(2):
        allowed = at.allowed().tolist()
        assert allowed == [token for token in range(len(PIECES)) if at.allows(token)]
        if 5 in allowed:
            at.accept(5)


def test_pieces_without_text_are_never_allowed() -> None:
    at = constraint("root ::= .*")
    assert not at.allows(PIECES.index(b""))
    assert not at.allows(PIECES.index(b"a\x00"))


def test_a_choice_has_a_share_of_work() -> None:
    at = constraint('root ::= "x" root "a" | "x" root "b" | "1"')

    def go_on() -> None:
        for _ in range(100):
            at.accept(PIECES.index(b"xxx"))

    with pytest.raises(GrammarTooComplex):
        go_on()


def test_a_full_automaton_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.engine.grammar.automaton.MAX_STACKS", 20)
    at, other = constraint('root ::= "[" "a"{0,500} "]"'), constraint('root ::= "[" "a"{0,500} "]"')
    at.accept(PIECES.index(b"["))
    for _ in range(500):
        at.accept(PIECES.index(b"a"))
    assert not at.allows(PIECES.index(b"a"))
    assert at.allows(PIECES.index(b"]"))
    assert not other.allows(PIECES.index(b"]"))


def test_grammars_are_kept_by_their_text() -> None:
    made: list[int] = []

    def make_table() -> TokenTable:
        made.append(1)
        return TABLE

    grammars = Grammars(make_table, lambda _: None)
    first = grammars.get('root ::= "a"')
    assert grammars.get('root ::= "a"') is first
    for n in range(40):
        grammars.get(f'root ::= "{n}"')
    assert grammars.get('root ::= "a"') is not first
    assert made == [1]


# ---- lazy


def lazy(*triggers: GrammarTrigger) -> LazyConstraint:
    program = parse('root ::= "{" "a"+ "}" [^x]*')
    return LazyConstraint(Grammar(program, TABLE), compile_triggers(triggers), (THINK,))


def say(at: LazyConstraint, *pieces: bytes) -> None:
    for piece in pieces:
        token = PIECES.index(piece)
        assert at.allows(token)
        at.accept(token)


def test_a_lazy_grammar_waits_for_its_word() -> None:
    at = lazy(GrammarTrigger(kind="word", value="{"))
    say(at, b"x", b"xxx", "é".encode(), b"\xe6\x97", b"\xa5x", b"{")
    assert not at.allows(PIECES.index(b"x"))
    assert {bytes(set(PIECES[token])) for token in at.allowed().tolist()} == {b"a"}
    say(at, b"a", b"}", b"b")
    assert at.allows(END)


def test_what_came_with_the_trigger_counts() -> None:
    at, wrong = lazy(GrammarTrigger(kind="pattern", value=r'x(\{")')), PIECES.index(b'{"')
    say(at, b"x")
    assert not at.allows(wrong)
    assert set(range(len(PIECES))) - set(at.allowed().tolist()) == {wrong}
    with pytest.raises(TokenRefused):
        at.accept(wrong)
    say(at, b"x", b"a")
    assert len(at.allowed()) == len(PIECES)


def test_a_token_may_wake_it() -> None:
    program = parse('root ::= <think> "a"', {"<think>": THINK}.get)
    triggers = compile_triggers([GrammarTrigger(kind="token", value="<think>", token=THINK)])
    at = LazyConstraint(Grammar(program, TABLE), triggers, (THINK,))
    say(at, b"x", b"{", b"<think>")
    assert at.allowed().tolist()
    assert not at.allows(PIECES.index(b"x"))


def test_a_full_pattern_fits_all_of_the_output() -> None:
    at = lazy(GrammarTrigger(kind="pattern_full", value=r"x*(\{)"))
    say(at, b"a", b"x", b"{", b"x")
    at = lazy(GrammarTrigger(kind="pattern_full", value=r"x*(\{)"))
    say(at, b"x", b"{")
    assert not at.allows(PIECES.index(b"x"))
