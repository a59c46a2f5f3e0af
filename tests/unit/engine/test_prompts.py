"""The shapes of `prompt`, and what does not fit."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import EXCEED_CONTEXT_SIZE, INVALID_REQUEST, RequestError
from services.engine.prompts import EXACT_BYTES, PromptReader
from tests.support.words import BOS, N_VOCAB, CharacterVocabulary

N_CTX = 16
A, B = 2 + ord("a") - 32, 2 + ord("b") - 32


def read(value: object, n_ctx: int = N_CTX) -> list[tuple[int, ...]]:
    return [prompt.ids for prompt in PromptReader(CharacterVocabulary(), n_ctx).read(value)]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("ab", [(BOS, A, B)]),
        ("", [(BOS,)]),
        ([A, B], [(A, B)]),
        ([A, "b"], [(A, B)]),
        (["a", B, "a"], [(BOS, A, B, A)]),
        (["a", "b"], [(BOS, A), (BOS, B)]),
        ([[A, B], "a", ["b", A]], [(A, B), (BOS, A), (BOS, B, A)]),
        ([[A], [B]], [(A,), (B,)]),
        ([[]], [()]),
        ({"prompt_string": "a"}, [(BOS, A)]),
        ([{"prompt_string": "a"}, "b"], [(BOS, A), (BOS, B)]),
        ({"prompt_string": "a", "multimodal_data": []}, [(BOS, A)]),
    ],
)
def test_shapes(value: object, expected: list[tuple[int, ...]]) -> None:
    assert read(value) == expected


def test_the_text_is_what_the_ids_say() -> None:
    (prompt,) = PromptReader(CharacterVocabulary(), N_CTX).read("ab")
    assert prompt.text == "<s>ab"


@pytest.mark.parametrize(
    "value",
    [
        [],
        None,
        5,
        True,
        1.5,
        [None],
        [1.5],
        [A, 1.5],
        [A, None],
        [A, True],
        [A, [B]],
        [{}],
        {"prompt_string": 5},
        {"prompt_string": "a", "multimodal_data": ["x"]},
        [-1],
        [N_VOCAB],
        [A, 10**30],
    ],
)
def test_what_is_no_prompt_is_refused(value: object) -> None:
    with pytest.raises(RequestError) as caught:
        read(value)
    assert (caught.value.problem.code, caught.value.problem.param) == (INVALID_REQUEST, "prompt")


@pytest.mark.parametrize("n", [N_CTX, N_CTX + 1, 1000])
@pytest.mark.parametrize("shape", ["text", "ids"])
def test_a_prompt_that_fills_the_context_is_refused(n: int, shape: str) -> None:
    value: Any = "a" * (n - 1) if shape == "text" else [A] * n
    with pytest.raises(RequestError) as caught:
        read(value)
    problem = caught.value.problem
    assert (problem.code, problem.status) == (EXCEED_CONTEXT_SIZE, 400)
    assert (problem.n_prompt_tokens, problem.n_ctx) == (n, N_CTX)
    assert f"request ({n} tokens) exceeds the available context size ({N_CTX} tokens)" in str(
        caught.value
    )


def test_one_token_less_than_the_context_fits() -> None:
    assert len(read([A] * (N_CTX - 1))[0]) == N_CTX - 1


@pytest.mark.parametrize("text", ["a" * (EXACT_BYTES + 1), "<end>" * EXACT_BYTES])
def test_a_huge_text_is_refused_uncounted(text: str) -> None:
    vocabulary = CharacterVocabulary()
    with pytest.raises(RequestError) as caught:
        PromptReader(vocabulary, N_CTX).read(text)
    assert vocabulary.n_tokenized == 0
    assert caught.value.problem.code == EXCEED_CONTEXT_SIZE
    assert (caught.value.problem.n_prompt_tokens or 0) > N_CTX


def test_a_huge_text_that_may_fit_is_counted() -> None:
    text = "a" * (EXACT_BYTES + 1)
    assert len(read(text, n_ctx=EXACT_BYTES + 9)[0]) == EXACT_BYTES + 2


ITEMS = st.none() | st.booleans() | st.integers(-2, N_VOCAB + 1) | st.floats() | st.text(max_size=5)
JSON = st.recursive(
    ITEMS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["prompt_string", "multimodal_data", "x"]), inner)
    ),
    max_leaves=8,
)


@given(JSON)
def test_any_json_is_read_or_refused(value: object) -> None:
    status = 200
    try:
        assert all(0 <= token < N_VOCAB for ids in read(value) for token in ids)
    except RequestError as error:
        status = error.problem.status
    assert status in (200, 400)
