"""Constrained output on real models: it is always valid, and goes on from a log as if undisturbed."""

import json
import re
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from schemas.errors import INVALID_REQUEST
from schemas.params import Params
from services.engine.grammar.json_schema import to_grammar
from services.engine.llama.vocabulary import Vocabulary
from services.engine.protocol import Broken, Emitted
from tests.support.continuing import cut, fresh
from tests.support.decoder_client import STORIES, DecoderClient, Run, decoder, params
from tests.support.grammars import matches
from tests.support.platform import demo_model

PROMPT = (1, *range(300, 340))
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 99},
        "tags": {"type": "array", "items": {"enum": ["a", "bc"]}, "maxItems": 2},
        "note": {"type": "string", "pattern": "^[a-z]{2,6}( [a-z]{2,6})?$"},
    },
    "required": ["name", "age", "note"],
}
GRAMMAR = to_grammar(PERSON)


@pytest.fixture(scope="module")
def tiny() -> Iterator[DecoderClient]:
    with decoder() as client:
        yield client


@pytest.fixture(scope="module")
def smol() -> Iterator[DecoderClient]:
    with decoder(model_path=str(demo_model()), n_ctx=2048) as client:
        yield client


SAMPLERS: list[dict[str, Any]] = [
    {"temperature": 0.8},
    {"temperature": 0.0},
    {"temperature": 2.0, "top_k": 0, "min_p": 0.0, "top_p": 1.0},
    {"temperature": 1.0, "repeat_penalty": 1.3, "typical_p": 0.7, "dynatemp_range": 0.5},
    {"temperature": 1.5, "xtc_probability": 0.9, "xtc_threshold": 0.05, "samplers": ["xtc", "temperature"]},
    {"mirostat": 1},
    {"mirostat": 2},
    {"temperature": 1.0, "samplers": ["adaptive_p"], "adaptive_target": 0.3},
    {"temperature": 0.8, "n_probs": 3, "post_sampling_probs": True},
    {"temperature": 0.8, "ignore_eos": True, "logit_bias": [[0, 3.0]]},
]  # fmt: skip


@pytest.mark.parametrize("sampling", SAMPLERS, ids=[str(s)[:50] for s in SAMPLERS])
@pytest.mark.parametrize("which", ["tiny", "smol"])
def test_the_output_is_valid_whatever_the_samplers(
    request: pytest.FixtureRequest, which: str, sampling: dict[str, Any]
) -> None:
    client: DecoderClient = request.getfixturevalue(which)
    name = f"{which}-{SAMPLERS.index(sampling)}"
    run = client.run_one(fresh(name, PROMPT, 3, params(n_predict=250, grammar=GRAMMAR, **sampling)))
    assert run.end
    assert run.end.stop_type == "eos", run.text
    jsonschema.validate(json.loads(run.text), PERSON)


def test_a_finished_grammar_allows_nothing_but_the_end(tiny: DecoderClient) -> None:
    run = tiny.run_one(fresh("a5", PROMPT, 1, params(n_predict=20, grammar='root ::= "a"{5,5}')))
    assert run.text == "aaaaa"
    assert run.end
    assert run.end.stop_type == "eos"


def test_a_choice_that_is_cut_off_is_a_beginning(tiny: DecoderClient) -> None:
    run = tiny.run_one(fresh("cut", PROMPT, 1, params(n_predict=9, grammar=GRAMMAR)))
    assert run.end
    assert run.end.stop_type == "limit"
    assert matches('root ::= "{" [^}]*', run.text)


def test_choices_of_different_grammars_run_side_by_side(tiny: DecoderClient) -> None:
    wanted = {"digits": "[0-9]{8}", "letters": "[a-f]{8}", "free": "", "marks": "[!?]{8}"}
    admits = [
        fresh(name, PROMPT, 2, params(n_predict=20, grammar=f"root ::= {body}" if body else ""))
        for name, body in wanted.items()
    ]
    runs = tiny.run(*admits)
    for name, body in wanted.items():
        assert not body or re.fullmatch(body, runs[name, 0].text)


def test_what_leads_nowhere_ends_its_own_choice_only(tiny: DecoderClient) -> None:
    """Stacks that double with every character; `b`, which would end that, cannot be chosen."""
    no_b = [[token, -1e30] for token, piece in enumerate(pieces_of_stories()) if b"b" in piece]
    explosive = params(
        n_predict=200, grammar='root ::= "a" root "x" | "a" root "y" | "b"', logit_bias=no_b
    )
    tiny.send(fresh("explosive", PROMPT, 1, explosive))
    broken = tiny.read_until(lambda output: isinstance(output, Broken))
    assert isinstance(broken, Broken)
    assert (broken.problem.code, broken.problem.param) == (INVALID_REQUEST, "grammar")
    assert "too ambiguous" in broken.problem.message
    assert tiny.run_one(fresh("after", PROMPT, 1, params(n_predict=3))).end


def pieces_of_stories() -> tuple[bytes, ...]:
    vocabulary = Vocabulary(STORIES)
    try:
        return vocabulary.pieces(range(vocabulary.n_vocab))
    finally:
        vocabulary.close()


# ---- continuing


def check(
    client: DecoderClient, a_params: Params, cuts: list[int], seed: int = 5, **config: object
) -> Run:
    """Continue in decoders that have seen nothing, after each of `cuts` tokens."""
    name = f"whole-{seed}-{len(client.reports)}"
    whole = fresh(name, PROMPT, seed, a_params)
    first_report = len(client.reports)
    run = client.run_one(whole)
    outputs = [o for report in client.reports[first_report:] for o in report.outputs]
    mine = [o for o in outputs if getattr(o, "generation_id", "") == name]
    start = client.started(name).choices[0]
    with decoder(**config) as other:
        for n in cuts:
            rest = other.run_one(cut(whole, start, mine, n, f"again-{n}"))
            assert run.ids[:n] + rest.ids == run.ids, f"continued after {n}"
            assert run.texts[:n] + rest.texts == run.texts
    return run


@pytest.mark.parametrize("sampling", SAMPLERS[:7], ids=[str(s)[:50] for s in SAMPLERS[:7]])
def test_a_constrained_choice_goes_on_from_its_log(
    tiny: DecoderClient, sampling: dict[str, Any]
) -> None:
    run = check(tiny, params(n_predict=80, grammar=GRAMMAR, **sampling), [1, 2, 9, 17, 30])
    assert {token.draws for token in run.emitted} >= {2}


def test_a_real_model_goes_on(smol: DecoderClient) -> None:
    a_params = params(n_predict=60, temperature=0.9, grammar=GRAMMAR)
    check(smol, a_params, [3, 20], model_path=str(demo_model()))


LAZY = params(
    n_predict=60,
    temperature=0.8,
    grammar='root ::= "a" [0-9]{4} "!" [x-z]+',
    grammar_lazy=True,
    grammar_triggers=[{"kind": "pattern", "value": r"[\s\S]{20,}?(a)"}],
)


def test_a_lazy_grammar_goes_on_before_and_after_its_trigger(tiny: DecoderClient) -> None:
    run = check(tiny, LAZY, [1, 5, 10, 15, 20, 30, 45])
    found = re.fullmatch(r"([\s\S]{20,}?)(a\d{4}![x-z]+)", run.text)
    assert found, run.text


def test_a_log_that_does_not_fit_its_grammar(tiny: DecoderClient) -> None:
    whole = fresh("misfit", PROMPT, 1, params(n_predict=5))
    run = tiny.run_one(whole)
    mine = [o for report in tiny.reports for o in report.outputs if isinstance(o, Emitted)]
    mine = [o for o in mine if o.generation_id == "misfit"]
    assert len(run.ids) == 5
    other = fresh("misfit", PROMPT, 1, params(n_predict=9, grammar='root ::= "0"+'))
    tiny.send(cut(other, tiny.started("misfit").choices[0], mine, 3, "misfit"))
    broken = tiny.read_until(lambda output: isinstance(output, Broken))
    assert isinstance(broken, Broken)
    assert "cannot be continued" in broken.problem.message
