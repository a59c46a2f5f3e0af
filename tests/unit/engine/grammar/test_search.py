"""Patterns that are looked for in growing text: as a backtracking matcher, but in linear time."""

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.params import GrammarTrigger
from services.engine.grammar import regex
from services.engine.grammar.errors import PatternInvalid
from services.engine.grammar.search import Pattern, Search
from services.engine.grammar.triggers import compile_triggers

PATTERNS = [
    r"[\s\S]*?(<t>)[\s\S]*",
    r"<t>",
    r"(a|b)+c",
    r"^(?:x+)?(<t>)",
    r"a{2,3}b",
    r"a{2,}?b",
    r"(x)?(<)",
    r"a*?(b+)",
    r"^ab|^b",
    r"(?:<t>|(\{))",
    r"[^<]*(<t>)$",
    r"é(t|>)",
    r"(a*)*b",
    r"()b",
    r"a|ab(c)",
    r"\s*(<t>)\s*",
    r"(?<name>\w+)>",
]


def feed(pattern: str, chunks: list[str]) -> tuple[int, int] | None:
    """How many chunks it took, and where the match begins."""
    search = Search(Pattern(regex.parse(pattern)))
    for number, chunk in enumerate(chunks):
        begin = search.feed(chunk.encode())
        if begin is not None:
            return number, begin
    return None


def expected(pattern: str, chunks: list[str]) -> tuple[int, int] | None:
    text = ""
    for number, chunk in enumerate(chunks):
        text += chunk
        found = re.search(pattern.replace("?<name>", ""), text, re.ASCII)
        if found is not None:
            groups = [i for i in range(1, (found.re.groups or 0) + 1) if found.group(i)]
            begin = found.start(groups[0]) if groups else found.start()
            return number, len(text[:begin].encode())
    return None


CHUNKS = st.lists(st.text(st.sampled_from("ab<t>xc{é "), min_size=1, max_size=4), max_size=6)


@pytest.mark.parametrize("pattern", PATTERNS)
@given(CHUNKS)
@settings(deadline=None)
def test_the_same_match_as_a_backtracking_matcher(pattern: str, chunks: list[str]) -> None:
    assert feed(pattern, chunks) == expected(pattern, chunks)


@pytest.mark.parametrize(
    "pattern", [r"(a+)+$x", r"(a|a)*b", r"(a?){30}a{30}b", r"^(([a-z])+.)+[A-Z]([a-z])+$"]
)
def test_no_pattern_takes_more_than_linear_time(pattern: str) -> None:
    search = Search(Pattern(regex.parse(pattern)))
    began = time.process_time()
    for _ in range(300):
        assert search.feed(b"aaaa") is None
    assert time.process_time() - began < 5


def test_characters_that_come_in_pieces() -> None:
    search = Search(Pattern(regex.parse("日(本)")))
    data = "x日本".encode()
    assert [search.feed(data[i : i + 1]) for i in range(len(data))] == [None] * 6 + [4]


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("(", "never closed"),
        (")", "without a `(`"),
        ("[a", "never closed"),
        ("*", "nothing to repeat"),
        ("a**", "nothing to repeat"),
        ("^*", "nothing to repeat"),
        ("a{3,2}", "not possible"),
        ("a{9999999}", "not possible"),
        (r"\1", "not supported"),
        (r"\bword", "not supported"),
        (r"\p{L}", "not supported"),
        ("(?=a)", "look-around"),
        ("(?i)a", "look-around and inline flags"),
        ("[z-a]", "backwards"),
        ("a\\", "nothing behind"),
        (r"\u{110000}", "no such character"),
        ("(" * 60 + ")" * 60, "nested deeper"),
        ("a" * 20_000, "at most 16384"),
        ("(a{100}){100}", "too large"),
        ("()" * 40, "at most 32 groups"),
    ],
)
def test_patterns_that_are_refused(pattern: str, message: str) -> None:
    with pytest.raises(PatternInvalid) as caught:
        compile_triggers([GrammarTrigger(kind="pattern", value=pattern)])
    assert message in str(caught.value)
