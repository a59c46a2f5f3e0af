"""Native JSON bodies as parameters: names, aliases, limits, and what is refused."""

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import INVALID_REQUEST, NOT_SUPPORTED, RequestError
from schemas.params import RANDOM_SEED, Limits, Params, Sampling
from services.engine.params import FIELDS, resolve
from tests.support.words import ALPHABET, EOS, N_VOCAB, CharacterVocabulary

INT_MAX = 2**31 - 1
N_SLOTS, N_CTX = 4, 512
DEFAULTS = Params(sampling=Sampling(temperature=0.5, top_k=7), limits=Limits(stop=("END",)))


def resolved(body: dict[str, Any], defaults: Params = DEFAULTS) -> Params:
    return resolve(body, defaults, CharacterVocabulary(), n_slots=N_SLOTS, n_ctx=N_CTX)


def refusal(body: dict[str, Any]) -> tuple[str, str | None, str]:
    with pytest.raises(RequestError) as caught:
        resolved(body)
    problem = caught.value.problem
    return problem.code, problem.param, problem.message


def value_of(params: Params, name: str) -> object:
    for part in (params.sampling, params.limits, params.output, params):
        if name in part.__struct_fields__:
            return getattr(part, name)
    raise AssertionError(name)


def test_an_empty_body_means_the_defaults() -> None:
    assert resolved({}) == DEFAULTS


def test_null_counts_as_absent() -> None:
    names = [name for field in FIELDS for name in (field.name, *field.aliases)]
    others = ["logit_bias", "id_slot", "n", "n_cmpl", "stream_options", "grammar", "json_schema"]
    assert resolved(dict.fromkeys([*names, *others])) == DEFAULTS


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("sse_ping_interval", -1, INT_MAX),
        ("n_predict", -1, INT_MAX),
        ("max_tokens", -1, INT_MAX),
        ("max_completion_tokens", -1, INT_MAX),
        ("n_indent", 0, INT_MAX),
        ("n_keep", -1, INT_MAX),
        ("n_discard", 0, INT_MAX),
        ("n_cmpl", 1, N_SLOTS),
        ("n", 1, N_SLOTS),
        ("n_cache_reuse", 0, INT_MAX),
        ("t_max_predict_ms", -1, 2**63 - 1),
        ("repeat_last_n", 0, INT_MAX),
        ("dry_allowed_length", 0, INT_MAX),
        ("dry_penalty_last_n", 0, INT_MAX),
        ("adaptive_decay", 0.0, 0.99),
        ("min_keep", 0, INT_MAX),
        ("id_slot", -1, INT_MAX),
    ],
)
def test_hard_limits_refuse_and_name_the_property(name: str, low: float, high: float) -> None:
    for wrong in (low - 1, high + 1, 1e40, -1e40, math.inf, 10**400):
        code, param, message = refusal({name: wrong})
        assert (code, param) == (INVALID_REQUEST, name)
        assert f"Field '{name}'" in message
        assert len(message) < 200
    resolved({name: low})


@pytest.mark.parametrize(
    ("name", "given_value", "expected"),
    [
        ("top_k", -5, 0),
        ("top_k", 10**12, INT_MAX),
        ("top_p", 1.5, 1.0),
        ("top_p", -1, 0.0),
        ("min_p", 2, 1.0),
        ("temperature", -0.5, 0.0),
        ("temperature", 1e300, 3.4028234e38),
        ("xtc_probability", -3, 0.0),
        ("xtc_threshold", 9, 1.0),
        ("adaptive_target", 7, 1.0),
        ("n_probs", -4, 0),
        ("n_probs", 10**9, N_VOCAB),
        ("frequency_penalty", 1e30, 1e6),
        ("presence_penalty", -math.inf, -1e6),
        ("repeat_penalty", 1e30, 1e6),
        ("repeat_last_n", INT_MAX, N_CTX),
        ("dry_penalty_last_n", INT_MAX, N_CTX),
        ("min_keep", INT_MAX, N_VOCAB),
        ("n_predict", 3.9, 3),
    ],
)
def test_soft_limits_clamp(name: str, given_value: float, expected: float) -> None:
    assert value_of(resolved({name: given_value}), name) == expected


@pytest.mark.parametrize(
    ("body", "name", "expected"),
    [
        ({"max_tokens": 5}, "n_predict", 5),
        ({"max_tokens": 5, "max_completion_tokens": 6}, "n_predict", 6),
        ({"max_tokens": 5, "n_predict": 7}, "n_predict", 7),
        ({"max_tokens": 5, "n_predict": None}, "n_predict", 5),
        ({"n": 2}, "n_cmpl", 2),
        ({"n": 2, "n_cmpl": 3}, "n_cmpl", 3),
        ({"logprobs": 3}, "n_probs", 3),
        ({"logprobs": 3, "n_probs": 4}, "n_probs", 4),
        ({"seed": -1}, "seed", RANDOM_SEED),
        ({"seed": 2**32 + 5}, "seed", 5),
        ({"seed": 42}, "seed", 42),
        ({"stop": "x"}, "stop", ("x",)),
        ({"stop": ["x", "", "y"]}, "stop", ("x", "y")),
        ({"stop": []}, "stop", ("END",)),
        ({"stop": ""}, "stop", ("END",)),
        ({"dry_base": 0.5}, "dry_base", 1.75),
        ({"dry_base": 2}, "dry_base", 2.0),
        ({"samplers": ["top-k", "TEMP", "nucleus", "nonsense"]}, "samplers", ("top_k", "temperature", "top_p")),
        ({"samplers": "kt?p"}, "samplers", ("top_k", "temperature", "top_p")),
        ({"samplers": []}, "samplers", ()),
        ({"id_slot": N_SLOTS + 1}, "id_slot", 1),
        ({"response_fields": ["a/b"]}, "response_fields", ("a/b",)),
        ({"stream_options": {"include_usage": True}}, "include_usage", True),
        ({"stream_options": 3}, "include_usage", False),
        ({"stream": True, "reasoning_format": "deepseek-legacy"}, "reasoning_in_content", True),
        ({"reasoning_format": "deepseek-legacy"}, "reasoning_in_content", False),
        ({"lora": [{"id": 1, "scale": 0.0}]}, "lora", ((1, 0.0),)),
    ],
)  # fmt: skip
def test_values(body: dict[str, Any], name: str, expected: object) -> None:
    assert value_of(resolved(body), name) == expected


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: field.name)
@pytest.mark.parametrize("value", [{}, {"a": 1}, [[]], [1.5], "\ud800" * 70_000])
def test_a_wrong_type_names_the_property(field: Any, value: object) -> None:
    if field.name == "samplers" and isinstance(value, str):
        assert resolved({"samplers": value}).sampling.samplers == ()
        return
    if field.name == "lora" and value == [1.5]:
        value = [1]
    code, param, message = refusal({field.name: value})
    assert (code, param) == (INVALID_REQUEST, field.name)
    assert f"Field '{field.name}'" in message


@pytest.mark.parametrize("name", ["n_predict", "temperature", "seed", "top_k"])
@pytest.mark.parametrize("value", [True, "5", math.nan])
def test_only_numbers_are_numbers(name: str, value: object) -> None:
    assert refusal({name: value})[:2] == (INVALID_REQUEST, name)


@pytest.mark.parametrize("value", [0, -1, -0.5])
def test_a_repeat_penalty_that_would_break_logits_is_refused(value: float) -> None:
    assert refusal({"repeat_penalty": value})[:2] == (INVALID_REQUEST, "repeat_penalty")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ([[5, 1.5]], ((5, 1.5),)),
        ([[5, False]], ((5, -math.inf),)),
        ([[5, True], [5, "x"], [5], 7, [None, 1], [N_VOCAB, 1], [-1, 1], [True, 1]], ()),
        ({"5": -3}, ((5, -3.0),)),
        ({" 5": 1, str(N_VOCAB): 1}, ((5, 1.0),)),
        ({"ab": False}, tuple((2 + ALPHABET.index(c), -math.inf) for c in "ab")),
        ([["a", 1e300]], ((2 + ALPHABET.index("a"), 1e30),)),
        ([], ()),
        ({}, ()),
    ],
)
def test_logit_bias(value: object, expected: object) -> None:
    assert resolved({"logit_bias": value}).sampling.logit_bias == expected


@pytest.mark.parametrize("value", [5, "x", True, [["a" * 5000, 1]], [[1, 1]] * 100_001])
def test_a_logit_bias_of_another_kind_is_refused(value: object) -> None:
    assert refusal({"logit_bias": value})[:2] == (INVALID_REQUEST, "logit_bias")


def test_ignore_eos_bans_what_ends_a_generation() -> None:
    params = resolved({"ignore_eos": True, "logit_bias": [[5, 1]]})
    assert params.sampling.logit_bias == ((5, 1.0), (EOS, -math.inf))
    assert params.sampling.ignore_eos


def test_ignore_eos_of_the_defaults_can_be_taken_back() -> None:
    defaults = Params(sampling=Sampling(ignore_eos=True))
    assert resolved({}, defaults).sampling.logit_bias == ((EOS, -math.inf),)
    assert resolved({"ignore_eos": False}, defaults).sampling.logit_bias == ()


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ({"lora": [{"id": 0, "scale": 1.0}]}, "lora"),
    ],
)
def test_what_is_not_built_is_refused(body: dict[str, Any], name: str) -> None:
    code, param, message = refusal(body)
    assert (code, param) == (NOT_SUPPORTED, name)
    assert name in message


@pytest.mark.parametrize(
    "body",
    [
        {"lora": []},
        {"tools": [{}], "tool_choice": "auto"},
    ],
)
def test_neutral_values_of_what_is_not_built_are_taken(body: dict[str, Any]) -> None:
    resolved(body)


def test_xtc_is_named_once() -> None:
    """Each has its own random source, and a log keeps the draws of one."""
    body = {"samplers": ["xtc", "top_k", "xtc"]}
    resolved(body)
    assert refusal({**body, "xtc_probability": 0.5})[:2] == (INVALID_REQUEST, "samplers")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
NAMES = [name for field in FIELDS for name in (field.name, *field.aliases)]
OTHER_NAMES = ["logit_bias", "id_slot", "n_cmpl", "n", "stream_options", "grammar", "json_schema"]
OTHER_NAMES += ["response_format", "tools", "tool_choice", "reasoning_budget_tokens"]


@given(st.dictionaries(st.sampled_from(NAMES + OTHER_NAMES), JSON, max_size=4))
def test_any_json_is_resolved_or_refused(body: dict[str, Any]) -> None:
    status = 200
    try:
        params = resolved(body)
        assert math.isfinite(params.sampling.temperature)
        msgspec.msgpack.encode(params)
    except RequestError as error:
        status = error.problem.status
    assert status in (200, 400, 501)
