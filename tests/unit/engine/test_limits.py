"""Ends that depend on lines: n_indent and t_max_predict_ms, llama-server's rules."""

import msgspec
import pytest

from schemas.events import ChoiceEnd
from schemas.params import Limits, Params
from services.engine.decoder.indentation import Indentation
from services.engine.decoder.job import Choice, Place, Sampled
from services.engine.protocol import ChoiceJob

JOB = ChoiceJob(choice=0, prompt=(1, 2), seed=1)


def choice(job: ChoiceJob = JOB, **limits: object) -> Choice:
    place = Place(generation_id="g", slot=0, n_ctx_slot=512, n_cached=0, started_us=1_000_000)
    return Choice(job, Params(limits=Limits(**limits)), place)  # type: ignore[arg-type]


def run(
    a_choice: Choice, *texts: str, step_ms: int = 10, eog_at: int = -1
) -> tuple[str, ChoiceEnd | None]:
    """The text that was shown, and the end. Tokens come every `step_ms`."""
    shown = ""
    for number, text in enumerate(texts):
        token = Sampled(id=5, piece=text.encode(), is_eog=number == eog_at)
        emitted, end = a_choice.take(token, 2_000_000 + number * step_ms * 1000)
        shown += emitted.text
        if end is not None:
            return shown + end.tail, end
    return shown, None


def kept(shown: str, end: ChoiceEnd | None) -> str:
    assert end
    return shown[: len(shown) - end.n_cut]


def test_a_line_that_is_indented_less_ends_it_and_is_cut() -> None:
    shown, end = run(choice(n_indent=2), "x:", "\n", "  a", "\n", " b", "c")
    assert end
    assert (shown, end.stop_type) == ("x:\n  a\n b", "limit")
    assert kept(shown, end) == "x:\n  a\n "


def test_a_line_within_one_token_is_noticed_with_the_next_one() -> None:
    shown, end = run(choice(n_indent=1), "x", "\n", " a\nfoo", "bar", "baz", "qux")
    assert (shown, kept(shown, end)) == ("x\n a\nfoobarbaz", "x\n a\n")


def test_the_first_line_may_begin_anywhere() -> None:
    assert run(choice(n_indent=4), "a", "b", " c")[1] is None


def test_empty_lines_and_enough_blanks_go_on() -> None:
    assert run(choice(n_indent=2), "a", "\n", "\t", "\t", "b", "\n", "   c")[1] is None


def test_held_back_text_counts_and_is_cut() -> None:
    shown, end = run(choice(n_indent=2, stop=("cb!",)), "a", "\n", "c", "b")
    assert (shown, kept(shown, end)) == ("a\ncb", "a\n")


def test_cut_characters_are_counted_not_bytes() -> None:
    shown, end = run(choice(n_indent=1), "é", "\n", "🐈", "é")
    assert (shown, kept(shown, end)) == ("é\n🐈é", "é\n")


def test_the_end_of_the_model_keeps_its_name_and_the_line_is_cut() -> None:
    shown, end = run(choice(n_indent=1), "a", "\n", " b\nc", "", "", eog_at=4)
    assert end
    assert (end.stop_type, kept(shown, end)) == ("eos", "a\n b\n")


def test_a_replayed_choice_ends_at_the_same_token() -> None:
    texts = ("a", "\n", "  b", "\n", "c")
    tokens = [Sampled(id=5, piece=text.encode(), is_eog=False) for text in texts]
    job = msgspec.structs.replace(JOB, emitted=(5,) * 5, texts=texts)
    end = choice(job, n_indent=2).replay(tokens)
    assert end
    assert (end.stop_type, end.n_cut) == ("limit", 1)


def test_a_line_is_judged_two_tokens_after_its_begin() -> None:
    """llama-server's pace: the break is shown, then found, then what follows it is looked at."""
    assert run(choice(n_indent=1), "a", "\n", "b")[1] is None


def test_without_the_property_nothing_is_kept() -> None:
    shown, end = run(choice(n_predict=3), "a", "\n", "b")
    assert (shown, kept(shown, end)) == ("a\nb", "a\nb")


@pytest.mark.parametrize(
    ("texts", "n_tokens"),
    [(("a", "b\n", "c", "d\n", "e\n"), 4), (("a\n", "b", "c", "d", "e"), None)],
)
def test_time_is_looked_at_after_each_line(texts: tuple[str, ...], n_tokens: int | None) -> None:
    """10 ms per token, counted from the first one on; 25 ms allowed."""
    shown, end = run(choice(t_max_predict_ms=25), *texts)
    if n_tokens is None:
        assert end is None
    else:
        assert end
        assert (end.stop_type, end.n_predicted) == ("limit", n_tokens)
        assert shown == "".join(texts[:n_tokens])


def test_time_counts_over_all_attempts() -> None:
    job = msgspec.structs.replace(JOB, spent_predicted_us=20_000)
    _, end = run(choice(job, t_max_predict_ms=25), "a", "b\n", "c\n")
    assert end
    assert end.n_predicted == 2
    assert end.timings.predicted_ms == 30.0


def test_indentation_alone() -> None:
    rule = Indentation(1)
    assert not rule.feed(b"a\n", has_new_line=False)
    assert not rule.feed(b"b", has_new_line=True), "the line is found now, judged with the next"
    assert rule.feed(b"c", has_new_line=True)
    assert rule.kept_text() == "a\n"
