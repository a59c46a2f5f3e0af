"""The text cursor: whole characters, stops that neither leak nor swallow."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.engine.text import TextCursor

CAT = "🐈"


def run(pieces: list[bytes], stops: tuple[str, ...] = ()) -> tuple[list[str], str, str]:
    """Feed pieces until a stop: the texts, the tail, the stop that was met."""
    cursor = TextCursor(stops)
    texts: list[str] = []
    for piece in pieces:
        texts.append(cursor.feed(piece))
        if cursor.stop_word:
            break
    return texts, cursor.tail(), cursor.stop_word


def test_plain_text_is_shown_at_once() -> None:
    assert run([b"Hello", b" world"]) == (["Hello", " world"], "", "")


def test_a_split_character_comes_whole() -> None:
    head, *rest = (bytes([byte]) for byte in CAT.encode())
    texts, tail, _ = run([b"a" + head, *rest, b"b"])
    assert texts == ["", "", "", f"a{CAT}", "b"]
    assert tail == ""


def test_an_unfinished_character_at_the_end_becomes_a_replacement() -> None:
    assert run([b"a", CAT.encode()[:3]]) == (["a", ""], "\ufffd", "")


@pytest.mark.parametrize("piece", [b"\xff", b"\xc3(", b"\xed\xa0\x80", b"\xf5\x80\x80\x80"])
def test_bytes_that_are_no_utf8_are_replaced(piece: bytes) -> None:
    texts, tail, _ = run([b"a", piece, b"z"])
    assert "".join(texts) + tail == "a" + piece.decode("utf-8", "replace") + "z"


def test_a_stop_over_tokens_does_not_leak() -> None:
    texts, tail, word = run([b"one ", b"two <", b"en", b"d> more"], ("<end>",))
    assert (texts, tail, word) == (["one ", "", "", "two "], "", "<end>")


def test_a_stop_that_does_not_come_is_shown_after_all() -> None:
    assert run([b"a <en", b"emy", b"!"], ("<end>",)) == (["", "a <enemy", "!"], "", "")


def test_held_text_is_the_tail() -> None:
    assert run([b"a ", b"<en"], ("<end>",)) == (["a ", ""], "<en", "")


def test_nothing_is_held_at_the_last_token() -> None:
    cursor = TextCursor(("<end>",))
    assert cursor.feed(b"a <") == ""
    assert cursor.feed(b"", is_last=True) == "a <"


def test_the_earliest_stop_wins() -> None:
    assert run([b"a b c"], ("c", "b")) == (["a "], "", "b")


def test_the_first_named_stop_wins_at_the_same_place() -> None:
    assert run([b"xabc"], ("abc", "ab"))[2] == "abc"
    assert run([b"xabc"], ("ab", "abc"))[2] == "ab"


def test_no_stop_is_looked_for_inside_a_character() -> None:
    head, rest = CAT.encode()[:2], CAT.encode()[2:]
    texts, tail, word = run([b"go STOP" + head, rest], ("STOP",))
    assert (texts, tail, word) == (["", "go "], "", "STOP")


def test_a_stop_before_an_unfinished_character_is_found_at_the_end() -> None:
    cursor = TextCursor(("STOP",))
    assert cursor.feed(b"go STOP" + CAT.encode()[:2]) == ""
    assert cursor.tail() == "go "
    assert cursor.stop_word == "STOP"


def test_a_repeating_stop_prefix() -> None:
    texts, tail, word = run([b"aa", b"a", b"ab", b"x"], ("aab",))
    assert "".join(texts) + tail == "aa"
    assert word == "aab"


def test_empty_stops_stop_nothing() -> None:
    assert run([b"ab"], ("",)) == (["ab"], "", "")


@st.composite
def cut_texts(draw: st.DrawFn) -> tuple[str, list[bytes], tuple[str, ...]]:
    text = draw(st.text(alphabet=st.sampled_from(f"ab<>é{CAT}\n"), max_size=40))
    data = text.encode()
    places = sorted(draw(st.sets(st.integers(0, len(data)), max_size=12)))
    pieces = [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]
    stops = draw(st.lists(st.text(alphabet=f"ab<>é{CAT}", min_size=1, max_size=5), max_size=3))
    return text, pieces, tuple(stops)


@given(cut_texts())
def test_any_split_gives_the_text_up_to_the_stop(
    case: tuple[str, list[bytes], tuple[str, ...]],
) -> None:
    text, pieces, stops = case
    texts, tail, word = run(pieces, stops)
    shown = "".join(texts) + tail
    if word:
        assert text.startswith(shown + word)
        assert not any(stop in shown for stop in stops)
    else:
        assert shown == text
        assert not any(stop in text for stop in stops)


@given(cut_texts())
def test_no_prefix_of_a_stop_is_ever_shown_before_the_end(
    case: tuple[str, list[bytes], tuple[str, ...]],
) -> None:
    _, pieces, stops = case
    cursor = TextCursor(stops)
    shown = ""
    for piece in pieces:
        shown += (text := cursor.feed(piece))
        if cursor.stop_word:
            return
        assert not text or not any(text.endswith(s[:n]) for s in stops for n in range(1, len(s)))


@given(st.binary(max_size=30), st.sets(st.integers(0, 30)))
def test_any_bytes_in_any_split_read_as_one_piece(data: bytes, places: set[int]) -> None:
    cuts = [0, *sorted(places), len(data)]
    pieces = [data[a:b] for a, b in pairwise(cuts)]
    texts, tail, _ = run(pieces)
    assert "".join(texts) + tail == data.decode("utf-8", "replace")


@given(cut_texts())
def test_feeding_again_gives_the_same(case: tuple[str, list[bytes], tuple[str, ...]]) -> None:
    _, pieces, stops = case
    assert run(pieces, stops) == run(pieces, stops)
