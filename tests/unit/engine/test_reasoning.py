"""What a request says about its reasoning budget."""

from typing import Any

import pytest

from schemas.errors import INVALID_REQUEST, RequestError
from schemas.params import Sampling
from services.engine.reasoning import with_reasoning

TAGS = ("<think>\n", "\n</think>")


class Letters:
    """One token per character, its code point; a text's first token gets a blank before it when
    `adds_blank`, as some tokenizers do it."""

    def __init__(self, *, adds_blank: bool = False) -> None:
        self._adds_blank = adds_blank

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> tuple[int, ...]:
        assert not add_special
        assert parse_special
        return ids(f" {text}" if self._adds_blank else text)

    def piece(self, token: int, *, special: bool = True) -> bytes:
        return chr(token).encode()


def ids(text: str) -> tuple[int, ...]:
    return tuple(map(ord, text))


def resolved(
    body: dict[str, Any],
    sampling: Sampling | None = None,
    *,
    tags: tuple[str, str] | None = TAGS,
    generation_prompt: str = "",
    adds_blank: bool = False,
) -> Sampling:
    return with_reasoning(
        sampling or Sampling(),
        body,
        Letters(adds_blank=adds_blank),
        tags=tags,
        generation_prompt=generation_prompt,
    )


def test_a_template_that_thinks() -> None:
    found = resolved({"reasoning_budget_tokens": 7}, generation_prompt="A<think>")
    assert found.reasoning_budget_tokens == 7
    assert found.reasoning_budget_start == ids("<think>")
    assert found.reasoning_budget_ends == (ids("</think>"),)
    assert found.reasoning_budget_forced == ids("</think>")
    assert found.reasoning_budget_prefill == ids("A<think>")


def test_a_message_comes_before_the_end() -> None:
    found = resolved({"reasoning_budget_tokens": 0, "reasoning_budget_message": "Well."})
    assert found.reasoning_budget_forced == ids("Well.</think>")


@pytest.mark.parametrize(
    ("body", "default", "expected"),
    [
        ({}, -1, -1),
        ({}, 9, 9),
        ({"reasoning_budget_tokens": 0}, 9, 0),
        ({"reasoning_budget_tokens": -1}, 9, 9),
        ({"reasoning_budget_tokens": None, "thinking_budget_tokens": 3}, 9, 3),
        ({"reasoning_budget_tokens": 4, "thinking_budget_tokens": 3}, 9, 4),
    ],
)
def test_the_budget(body: dict[str, Any], default: int, expected: int) -> None:
    sampling = Sampling(reasoning_budget_tokens=default)
    assert resolved(body, sampling).reasoning_budget_tokens == expected


def test_the_flags_message_is_the_default() -> None:
    sampling = Sampling(reasoning_budget_message="Enough.")
    assert resolved({}, sampling).reasoning_budget_forced == ids("Enough.</think>")
    given = resolved({"reasoning_budget_message": ""}, sampling)
    assert given.reasoning_budget_forced == ids("</think>")


@pytest.mark.parametrize(
    ("tags", "ends"),
    [
        ({"reasoning_budget_end_tag": "]"}, (ids("]"),)),
        ({"reasoning_budget_end_tags": ["]", "", "}"]}, (ids("]"), ids("}"))),
    ],
)
def test_without_a_template_the_requests_tags_count(
    tags: dict[str, Any], ends: tuple[tuple[int, ...], ...]
) -> None:
    found = resolved({"reasoning_budget_start_tag": "[", **tags}, tags=None)
    assert (found.reasoning_budget_start, found.reasoning_budget_ends) == (ids("["), ends)
    assert found.reasoning_budget_forced == ids("]")


def test_without_tags_there_is_no_budget_but_it_may_be_controlled() -> None:
    found = resolved({"reasoning_budget_tokens": 3, "reasoning_control": True}, tags=None)
    assert found.reasoning_control
    assert found.reasoning_budget_start == ()


def test_a_blank_that_the_tokenizer_adds_is_no_part_of_the_answer() -> None:
    found = resolved({}, generation_prompt="ab", adds_blank=True)
    assert found.reasoning_budget_prefill == ids("ab")
    found = resolved({}, generation_prompt=" ab", adds_blank=True)
    assert found.reasoning_budget_prefill == ids("  ab")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("reasoning_budget_tokens", "3"),
        ("reasoning_budget_tokens", -2),
        ("thinking_budget_tokens", True),
        ("reasoning_budget_message", 5),
        ("reasoning_budget_message", "x" * 5000),
        ("reasoning_budget_start_tag", ["x"]),
        ("reasoning_budget_end_tags", "x"),
        ("reasoning_budget_end_tags", ["x"] * 17),
        ("reasoning_budget_end_tag", {}),
        ("reasoning_control", "yes"),
    ],
)
def test_what_is_wrong_is_named(name: str, value: object) -> None:
    with pytest.raises(RequestError) as caught:
        resolved({name: value}, tags=None)
    assert (caught.value.problem.code, caught.value.problem.param) == (INVALID_REQUEST, name)
