"""When a choice ends, and what is counted and timed."""

import pytest

from schemas.events import ChoiceEnd
from schemas.params import Limits, Params
from services.engine.decoder.job import Choice, LogMismatch, Place, Sampled
from services.engine.protocol import ChoiceJob, Emitted

N_CTX = 20


def choice(n_prompt: int = 4, *, n_cached: int = 0, **fields: object) -> Choice:
    job_fields = {key: fields.pop(key) for key in ("emitted", "texts") if key in fields}
    spent = {key: fields.pop(key) for key in list(fields) if key.startswith("spent")}
    job = ChoiceJob(choice=2, prompt=tuple(range(n_prompt)), seed=1, **job_fields, **spent)  # type: ignore[arg-type]
    place = Place(
        generation_id="g", slot=3, n_ctx_slot=N_CTX, n_cached=n_cached, started_us=1_000_000
    )
    return Choice(job, Params(limits=Limits(**fields)), place)  # type: ignore[arg-type]


def token(text: str | bytes, *, is_eog: bool = False, id_: int = 9) -> Sampled:
    piece = text.encode() if isinstance(text, str) else text
    return Sampled(id=id_, piece=piece, is_eog=is_eog)


def run(a_choice: Choice, *tokens: Sampled) -> tuple[list[Emitted], ChoiceEnd | None]:
    """Take tokens, one each 10 ms from 1.5 s on, until the end."""
    emitted: list[Emitted] = []
    for number, sampled in enumerate(tokens):
        one, end = a_choice.take(sampled, 1_500_000 + number * 10_000)
        emitted.append(one)
        if end is not None:
            return emitted, end
    return emitted, None


def test_tokens_are_numbered_and_timed() -> None:
    emitted, end = run(choice(), token("a"), token("b"))
    assert end is None
    assert [(e.choice, e.index, e.text) for e in emitted] == [(2, 0, "a"), (2, 1, "b")]
    assert [(e.elapsed_us, e.prompt_us) for e in emitted] == [(500_000, 500_000), (510_000, 0)]


def test_end_of_generation() -> None:
    _, end = run(choice(n_cached=3), token("a"), token("b"), token("", is_eog=True))
    assert end
    assert (end.stop_type, end.n_predicted, end.n_prompt, end.n_cached) == ("eos", 3, 4, 3)
    assert (end.n_context, end.slot, end.is_truncated) == (6, 3, False)
    assert (end.timings.n_prompt, end.timings.prompt_ms) == (1, 500.0)
    assert (end.timings.n_predicted, end.timings.predicted_ms) == (3, 20.0)


@pytest.mark.parametrize(("n_predict", "n_tokens"), [(0, 1), (1, 1), (3, 3)])
def test_token_limit(n_predict: int, n_tokens: int) -> None:
    emitted, end = run(choice(n_predict=n_predict), *[token("a")] * 5)
    assert end
    assert (end.stop_type, len(emitted), end.is_truncated) == ("limit", n_tokens, False)


def test_full_context() -> None:
    emitted, end = run(choice(), *[token("a")] * 50)
    assert end
    assert (end.stop_type, end.is_truncated, end.n_context) == ("limit", True, N_CTX - 1)
    assert len(emitted) == N_CTX - 4


def test_stop_word() -> None:
    emitted, end = run(choice(stop=("STOP",)), token("a S"), token("TO"), token("P b"))
    assert end
    assert [e.text for e in emitted] == ["", "", "a "]
    assert (end.stop_type, end.stopping_word, end.tail) == ("word", "STOP", "")


def test_held_text_is_the_tail_at_a_limit() -> None:
    _, end = run(choice(stop=("STOP",), n_predict=2), token("a"), token("\nST"))
    assert end
    assert (end.stop_type, end.tail, end.has_new_line) == ("limit", "\nST", True)


def test_held_text_is_shown_with_the_end_token() -> None:
    emitted, end = run(choice(stop=("STOP",)), token("a ST"), token("", is_eog=True))
    assert end
    assert ([e.text for e in emitted], end.tail) == (["", "a ST"], "")


def test_a_stop_in_the_tail_counts() -> None:
    _, end = run(choice(stop=("STOP",), n_predict=1), token(b"a STOP\xf0\x9f"))
    assert end
    assert (end.stop_type, end.stopping_word, end.tail) == ("word", "STOP", "a ")


def test_new_lines_are_noticed() -> None:
    assert (end := run(choice(n_predict=1), token("a\n"))[1])
    assert end.has_new_line


def test_replay_goes_on_where_the_log_ends() -> None:
    tokens = [token("a ST"), token("OR")]
    a_choice = choice(emitted=(1, 2), texts=("", "a STOR"), stop=("STOP",), n_predict=3)
    assert a_choice.replay(tokens) is None
    (emitted,), end = run(a_choice, token("M"))
    assert (emitted.index, emitted.text, emitted.prompt_us) == (2, "M", 500_000)
    assert end
    assert end.n_predicted == 3


def test_replay_of_a_complete_log_is_the_end() -> None:
    spent = {"spent_prompt_us": 1000, "spent_predicted_us": 3000}
    a_choice = choice(emitted=(1, 2), texts=("a", "b"), n_predict=2, **spent)
    end = a_choice.replay([token("a"), token("b")])
    assert end
    assert (end.stop_type, end.timings.prompt_ms, end.timings.predicted_ms) == ("limit", 1, 3)


def test_times_are_summed_over_attempts() -> None:
    spent = {"spent_prompt_us": 1_000_000, "spent_predicted_us": 3_000_000}
    a_choice = choice(emitted=(1,), texts=("a",), n_predict=3, **spent)
    a_choice.replay([token("a")])
    assert (end := run(a_choice, token("b"), token("c"))[1])
    assert (end.timings.prompt_ms, end.timings.predicted_ms) == (1500, 3010)


@pytest.mark.parametrize(
    ("texts", "message"),
    [(("a", "x"), "reads 'b' here and 'x' in the log"), (("a", "b", "c"), "after the end")],
)
def test_a_log_that_says_something_else(texts: tuple[str, ...], message: str) -> None:
    emitted = tuple(range(len(texts)))
    a_choice = choice(emitted=emitted, texts=texts, n_predict=2)
    with pytest.raises(LogMismatch, match=message):
        a_choice.replay([token("a"), token("b"), token("c")][: len(texts)])
