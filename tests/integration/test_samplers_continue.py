"""Whatever the sampler, a choice that a fresh decoder continues from its log goes on undisturbed."""

from collections.abc import Iterator

import pytest

from tests.support.continuing import cut, fresh
from tests.support.decoder_client import DecoderClient, Run, decoder, params

PROMPT = (1, *range(300, 340))
N_PREDICT = 48
CUTS = (1, 2, 17, 47)
GRAMMAR = 'root ::= " " [A-Z] [a-z ]+ "." root'
CASES: dict[str, dict[str, object]] = {
    "default": {},
    "greedy": {"temperature": 0.0},
    "penalties": {"repeat_penalty": 1.3, "presence_penalty": 0.2, "frequency_penalty": 0.1},
    "dry": {"dry_multiplier": 0.8, "dry_allowed_length": 1, "temperature": 1.2},
    "top_n_sigma": {"top_n_sigma": 1.0, "temperature": 1.5, "top_k": 0},
    "typical": {"typical_p": 0.5, "top_k": 0, "top_p": 1.0, "min_p": 0.0},
    "min_keep": {"min_keep": 10, "top_p": 0.1, "min_p": 0.9, "temperature": 1.5},
    "dynamic temperature": {"dynatemp_range": 0.7, "dynatemp_exponent": 0.8},
    "logit bias": {"logit_bias": [[305, 5.0], [400, -2.5]], "temperature": 1.3},
    "xtc": {"xtc_probability": 0.5, "xtc_threshold": 0.05, "temperature": 1.0},
    "xtc that sometimes sees one": {
        "xtc_probability": 0.6,
        "xtc_threshold": 0.02,
        "top_p": 0.6,
        "min_keep": 1,
    },
    "mirostat 1": {"mirostat": 1, "mirostat_tau": 3.0, "mirostat_eta": 0.2},
    "mirostat 2": {"mirostat": 2, "mirostat_tau": 3.0, "mirostat_eta": 0.2, "temperature": 1.2},
    "mirostat 2 that sometimes sees one": {
        "mirostat": 2,
        "mirostat_tau": 0.3,
        "mirostat_eta": 0.9,
    },
    "adaptive_p": {
        "samplers": ["penalties", "top_k", "min_p", "temperature", "adaptive_p"],
        "adaptive_target": 0.4,
        "adaptive_decay": 0.8,
        "repeat_penalty": 1.1,
    },
    "adaptive_p switched off": {"samplers": ["min_p", "adaptive_p"], "adaptive_target": -1.0},
    "adaptive_p and xtc": {
        "samplers": ["top_k", "xtc", "adaptive_p"],
        "adaptive_target": 0.3,
        "xtc_probability": 0.6,
        "xtc_threshold": 0.03,
    },
    "infill": {"samplers": ["top_k", "infill", "temperature"], "ignore_eos": True},
    "no sampler": {"samplers": []},
    "grammar": {"grammar": GRAMMAR},
    "grammar, mirostat": {"grammar": GRAMMAR, "mirostat": 2},
    "grammar, xtc": {"grammar": GRAMMAR, "xtc_probability": 0.5, "xtc_threshold": 0.05},
    "grammar, adaptive_p": {
        "grammar": GRAMMAR,
        "samplers": ["top_k", "adaptive_p"],
        "adaptive_target": 0.4,
    },
    "probabilities": {"n_probs": 3, "post_sampling_probs": True, "temperature": 1.2},
}


@pytest.fixture(scope="module")
def first() -> Iterator[DecoderClient]:
    with decoder() as client:
        yield client


@pytest.fixture(scope="module")
def second() -> Iterator[DecoderClient]:
    """The one that takes over; a continued choice reuses nothing that it has computed before."""
    with decoder() as client:
        yield client


@pytest.mark.parametrize("case", CASES)
def test_ids_texts_and_what_is_logged_are_equal(
    case: str, first: DecoderClient, second: DecoderClient
) -> None:
    admit = fresh(case, PROMPT, 7, params(n_predict=N_PREDICT, **CASES[case]))
    run = first.run_one(admit)
    start = first.started(case).choices[0]
    for n in (n for n in CUTS if n < len(run.ids)):
        rest = second.run_one(cut(admit, start, run.emitted, n, f"{case} {n}"))
        assert run.ids[:n] + rest.ids == run.ids, f"continued after {n}"
        assert run.texts[:n] + rest.texts == run.texts, f"continued after {n}"
        assert _logged(run)[n:] == _logged(rest), f"continued after {n}"


def test_where_a_generator_does_not_draw_the_log_says_so(first: DecoderClient) -> None:
    """Else the cases above would prove nothing."""
    xtc = _run(first, "xtc that sometimes sees one")
    assert {token.xtc_draws for token in xtc.emitted} == {0, 1}
    mirostat = _run(first, "mirostat 2 that sometimes sees one")
    assert {token.draws for token in mirostat.emitted} == {0, 1}
    assert all(token.mu is not None for token in mirostat.emitted)
    assert {token.draws for token in _run(first, "grammar").emitted} == {1, 2}
    assert all(token.mu is None for token in _run(first, "default").emitted)


def _run(client: DecoderClient, case: str) -> Run:
    return client.run_one(
        fresh(f"{case} again", PROMPT, 7, params(n_predict=N_PREDICT, **CASES[case]))
    )


def _logged(run: Run) -> list[tuple[object, ...]]:
    return [(token.draws, token.xtc_draws, token.mu, token.probs) for token in run.emitted]
