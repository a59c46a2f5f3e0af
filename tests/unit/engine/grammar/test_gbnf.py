"""GBNF texts: what they mean, and what is refused with its place."""

import time

import pytest

from services.engine.grammar.automaton import Automaton
from services.engine.grammar.errors import GrammarInvalid, GrammarTooComplex
from services.engine.grammar.gbnf import MAX_CHARS, parse
from services.engine.grammar.recursion import find_endable
from tests.support.grammars import matches

CASES = [
    ('root ::= "a"', ["a"], ["", "b", "aa"]),
    ('root ::= "a" | "bc" |', ["", "a", "bc"], ["b", "abc"]),
    (r'root ::= "\x41é\u00e9\U0001F600\n\t\r\\\""', ['Aéé😀\n\t\r\\"'], ["A"]),
    (r"root ::= [^a-c\]\-\\]", ["d", "é", "^"], ["a", "b", "c", "]", "-", "\\", ""]),
    (r"root ::= [a-]", ["a", "-"], ["b"]),
    (r"root ::= [\]^[-]", ["]", "^", "[", "-"], ["\\"]),
    ("root ::= . .", ["ab", "é\n", "😀😀"], ["a", "abc"]),
    ('root ::= "ab"* "c"', ["c", "abc", "ababc"], ["ac", "ab"]),
    ('root ::= "ab"+', ["ab", "abab"], [""]),
    ('root ::= "ab"? "c"', ["c", "abc"], ["ababc"]),
    ('root ::= "ab"{2}', ["abab"], ["ab", "ababab"]),
    ('root ::= [ab]{2,}', ["ab", "abab"], ["a"]),
    ('root ::= [ab] { 1 , 3 }', ["a", "aba"], ["", "abab"]),
    ('root ::= "a"{0} "b"', ["b"], ["ab"]),
    ('root ::= "a"{2}{2}', ["aaaa"], ["aa", "aaa"]),
    ('root ::= ("a" | "b" # why\n "c")+', ["a", "bc", "abc"], ["b", ""]),
    ('root ::=\n  "a" |\n  # more\n  "b"\n\n# end', ["a", "b"], ["ab"]),
    ('root ::= x-1 "!" \r\nx-1 ::= "a" x-1 | "b"', ["b!", "aab!"], ["a!"]),
    ('x ::= "b"\nroot ::= x\nx ::= "a"', ["a"], ["b"]),
    ('root ::= ("a"*)* "b"', ["b", "aab"], ["a"]),
    ('root ::= "(" root ")" | ""', ["", "(())"], ["(", ")("]),
    ('root ::= ws root | "a"\nws ::= " "*', ["a", "  a"], [" "]),
    ('root ::= root | "a"', ["a"], [""]),
    ('root ::= [] "a" ""', ["a"], [""]),
    ("root ::= [à-ÿ]{2}", ["éà"], ["é", "ae"]),
]  # fmt: skip


@pytest.mark.parametrize(("grammar", "good", "bad"), CASES, ids=[case[0] for case in CASES])
def test_what_grammars_mean(grammar: str, good: list[str], bad: list[str]) -> None:
    assert [text for text in good if not matches(grammar, text)] == []
    assert [text for text in bad if matches(grammar, text)] == []


@pytest.mark.parametrize(
    ("grammar", "message"),
    [
        ("", "no rule `root`"),
        ('foo ::= "a"', "no rule `root`"),
        ("root", "line 1, column 5: expected `::=`"),
        ('::= "a"', "line 1, column 1: expected the name"),
        ('root ::= "a"\n x', "line 2, column 3: expected `::=`"),
        ("root ::= foo", "line 1, column 10: the rule `foo` is not defined"),
        ('root ::= "a', "column 10: this literal is never closed"),
        ("root ::= [a", "column 10: this set is never closed"),
        ("root ::= (a", "column 10: this group is never closed"),
        ("root ::= a)", "column 11: `)` without"),
        ("root ::= *", "column 10: there is nothing to repeat"),
        ('root ::= "a" | +', "column 16: there is nothing to repeat"),
        ('root ::= "a"{', "column 13: this count is never closed"),
        ('root ::= "a"{x}', "column 13: expected `{n}`"),
        ('root ::= "a"{3,2}', "asks for more than it allows"),
        ('root ::= "a"{99999999999999999999}', "at most 9 digits"),
        (r'root ::= "\q"', r"unknown escape `\q`"),
        (r'root ::= "\x4"', r"unknown escape `\x`"),
        (r'root ::= "\U00110000"', "no character"),
        ("root ::= [z-a]", "range 'z'-'a' is empty"),
        ("root ::= <think>", "`<think>` is not a token"),
        ("root ::= <[x]>", "expected a token's id"),
        ('root ::= "a" ::= b', "`::=` inside of a rule"),
        ("root ::= this is (not valid GBNF", "column 18: this group is never closed"),
        ('root ::= "a"\x00', "unexpected '\\x00'"),
        ("%llguidance {}\nstart: /a/", "unexpected '%'"),
        ('root ::= root "a" | "b"', "the rule `root` calls itself"),
        ('root ::= ws root "a" | "b"\nws ::= " "*', "the rule `root` calls itself"),
        ('root ::= (root)* "x"', "the rule `root` calls itself"),
        ('root ::= a\na ::= b "x"\nb ::= a "y" | "z"', "calls itself before"),
    ],
)
def test_what_is_refused(grammar: str, message: str) -> None:
    with pytest.raises(GrammarInvalid) as caught:
        parse(grammar)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "grammar",
    [
        "root ::= " + "(" * 60_000 + '"a"' + ")" * 60_000,
        "root ::= " + "(" * 60_000,
        '"' * MAX_CHARS * 2,
        'root ::= "' + "a" * (MAX_CHARS - 20) + '"',
    ],
)
def test_what_is_too_large(grammar: str) -> None:
    with pytest.raises(GrammarInvalid, match=r"at most|nested deeper"):
        parse(grammar)


@pytest.mark.parametrize(
    "grammar",
    [
        "root ::= a0\n"
        + "".join(f"a{i} ::= a{i + 1} | a{i + 1}\n" for i in range(5000))
        + 'a5000 ::= "x"',
        "root ::= " + " | ".join(f'"{i}"' for i in range(20_000)),
        'root ::= "a"{1,100000} | [a-z]{0,1000000}',
        'root ::= ((("x"{1,1000000}){1,1000000}){1,1000000})* "y"',
        "root ::= " + "(" * 250 + '"a"' + ")*" * 250,
        "root ::= [" + "".join(chr(0x100 + 2 * i) for i in range(20_000)) + "]",
    ],
)
def test_large_grammars_cost_little(grammar: str) -> None:
    began = time.process_time()
    assert Automaton(parse(grammar)).start.key.stacks
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    "grammar",
    [
        'root ::= (""){0,1000000}',
        'root ::= ("x"{0,1000000}){0,1000000}',
        "root ::= " + '"a"? ' * 50_000,
    ],
)
def test_what_cannot_be_followed_is_refused(grammar: str) -> None:
    program = parse(grammar)
    with pytest.raises(GrammarTooComplex):
        Automaton(program)


def test_ambiguity_does_not_multiply() -> None:
    """2^n ways to read n characters: llama.cpp's matcher would follow them all."""
    state_of = Automaton(parse('root ::= ("a" | "a" | "a")* "b"'))
    assert state_of.feed(state_of.start, b"a" * 5000) is not None
    assert state_of.work < 100_000


def test_stacks_that_multiply_are_given_up() -> None:
    automaton = Automaton(parse('root ::= "a" root "x" | "a" root "y" | "b"'))
    with pytest.raises(GrammarTooComplex):
        automaton.feed(automaton.start, b"a" * 100)


def test_rules_that_never_end() -> None:
    program = parse('root ::= "a" root\nb ::= "b" | "c" b')
    assert find_endable(program) == [False, True]


def test_tokens_by_name_and_by_id() -> None:
    program = parse("root ::= <a> !<[7]>", {"<a>": 5}.get)
    automaton = Automaton(program)
    after = automaton.step_token(automaton.start, 5)
    assert after is not None
    assert automaton.step_token(automaton.start, 7) is None
    assert automaton.step_token(after, 7) is None
    last = automaton.step_token(after, 8)
    assert last is not None
    assert last.can_end


def test_an_automaton_takes_over_from_another() -> None:
    program = parse('root ::= "[" ("x"{3,9} ("," "x"{3,9})*)? "]"')
    first, second = Automaton(program), Automaton(program)
    begun = first.feed(first.start, b"[xxxx,x")
    assert begun is not None
    adopted = second.adopt(begun, first)
    for text in (b"xx]", b"x]", b"xxxxxxxx]", b"xxxxxxxxx]", b"xx,"):
        ours, theirs = second.feed(adopted, text), first.feed(begun, text)
        assert (ours is None) == (theirs is None)
