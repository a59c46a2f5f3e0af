"""Requests for constrained output: their grammar, or a refusal that names the property."""

from typing import Any

import pytest

from schemas.errors import INVALID_REQUEST, RequestError
from schemas.params import GrammarTrigger, Sampling
from services.engine.constraints import with_constraint
from services.engine.grammar.json_schema import to_grammar

TOKENS = {"<call>": 7, "<think>": 8}
GRAMMAR = 'root ::= "a"+'
SCHEMA = {"type": "array", "items": {"type": "integer"}}


class Words:
    """A vocabulary of two names; everything else is a token per character."""

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> tuple[int, ...]:
        assert not add_special
        return (TOKENS[text],) if parse_special and text in TOKENS else tuple(map(ord, text)) * 2


def constrained(body: dict[str, Any], given: Sampling | None = None) -> Sampling:
    return with_constraint(given or Sampling(), body, Words())


def refusal(body: dict[str, Any]) -> tuple[str | None, str]:
    with pytest.raises(RequestError) as caught:
        constrained(body)
    assert caught.value.problem.code == INVALID_REQUEST
    return caught.value.problem.param, caught.value.problem.message


@pytest.mark.parametrize(
    ("body", "grammar"),
    [
        ({}, ""),
        ({"grammar": None, "json_schema": None, "response_format": None}, ""),
        ({"grammar": ""}, ""),
        ({"grammar": GRAMMAR}, GRAMMAR),
        ({"json_schema": SCHEMA}, to_grammar(SCHEMA)),
        ({"json_schema": SCHEMA, "grammar": ""}, to_grammar(SCHEMA)),
        ({"json_schema": {}}, to_grammar({"type": "object"})),
        ({"response_format": {}}, ""),
        ({"response_format": {"type": "text"}}, ""),
        ({"response_format": {"type": "json_object"}}, to_grammar({"type": "object"})),
        ({"response_format": {"type": "json_object", "schema": SCHEMA}}, to_grammar(SCHEMA)),
        ({"response_format": {"type": "json_schema", "schema": SCHEMA}}, to_grammar(SCHEMA)),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}},
            to_grammar(SCHEMA),
        ),
        ({"response_format": {"type": "json_schema"}}, to_grammar({"type": "object"})),
        ({"grammar": "root ::= <think>"}, "root ::= <think>"),
    ],
)
def test_the_grammar_of_a_request(body: dict[str, Any], grammar: str) -> None:
    assert constrained(body).grammar == grammar


def test_a_request_replaces_the_engines_own() -> None:
    own = Sampling(grammar='root ::= "own"')
    assert constrained({}, own).grammar == 'root ::= "own"'
    assert constrained({"grammar": GRAMMAR}, own).grammar == GRAMMAR


@pytest.mark.parametrize(
    ("body", "param", "part"),
    [
        ({"grammar": 1}, "grammar", "expected a string"),
        ({"grammar": "root ::= (a"}, "grammar", "failed to parse grammar: line 1, column 10"),
        ({"grammar": "root ::= x"}, "grammar", "the rule `x` is not defined"),
        ({"grammar": "root ::= <other>"}, "grammar", "not a token of this model"),
        ({"grammar": "root ::= " + "(" * 60_000}, "grammar", "nested deeper than"),
        ({"grammar": 'root ::= (""){0,1000000}'}, "grammar", "too ambiguous"),
        ({"grammar": "root ::= root"}, "grammar", "allows no text at all"),
        ({"grammar": GRAMMAR, "json_schema": {}}, "grammar", "Cannot use both"),
        ({"json_schema": []}, "json_schema", "expected an object"),
        ({"json_schema": "x"}, "json_schema", "expected an object"),
        ({"json_schema": {"type": "x"}}, "json_schema", "JSON schema conversion failed: #: `type`"),
        (
            {"json_schema": {"type": 1}, "json_schema_property": "response_format.schema"},
            "response_format.schema",
            "`type`",
        ),
        ({"json_schema": {"type": 1}, "json_schema_property": "other"}, "json_schema", "`type`"),
        ({"json_schema": {"type": 1}, "json_schema_property": []}, "json_schema", "`type`"),
        ({"response_format": "json"}, "response_format", "expected an object"),
        ({"response_format": {"type": "xml"}}, "response_format", "type must be one of"),
        (
            {"response_format": {"type": "json_schema", "json_schema": 1}},
            "response_format.json_schema",
            "expected an object",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": 1}}}},
            "response_format.json_schema.schema",
            "`type`",
        ),
        (
            {"response_format": {"type": "json_object", "schema": {"items": {"not": {}}}}},
            "response_format.schema",
            "#/items: `not` cannot be expressed",
        ),
        ({"grammar_lazy": 1}, "grammar_lazy", "expected a boolean"),
        ({"grammar": GRAMMAR, "grammar_lazy": True}, "grammar_lazy", "needs grammar_triggers"),
        ({"grammar_triggers": {}}, "grammar_triggers", "expected a list"),
        ({"grammar_triggers": [1]}, "grammar_triggers", "expected an object"),
        ({"grammar_triggers": [{}]}, "grammar_triggers", "between 0 and 3"),
        ({"grammar_triggers": [{"type": 9, "value": "x"}]}, "grammar_triggers", "between 0 and 3"),
        ({"grammar_triggers": [{"type": 1, "value": 5}]}, "grammar_triggers", "needs a text"),
        ({"grammar_triggers": [{"type": 2, "value": ""}]}, "grammar_triggers", "needs a text"),
        ({"grammar_triggers": [{"type": 0}]}, "grammar_triggers", "expected a number"),
        ({"grammar_triggers": [{"type": 2, "value": "(a"}]}, "grammar_triggers", "never closed"),
        ({"grammar_triggers": [{"type": 2, "value": r"(?!a)"}]}, "grammar_triggers", "look-around"),
        ({"grammar_triggers": [{"type": 1, "value": "<call>"}]}, "grammar_triggers", "preserved"),
        ({"grammar_triggers": [{"type": 1, "value": "x"}] * 65}, "grammar_triggers", "at most 64"),
        ({"preserved_tokens": "x"}, "preserved_tokens", "list of strings"),
    ],
)
def test_what_is_refused(body: dict[str, Any], param: str, part: str) -> None:
    name, message = refusal(body)
    assert name == param
    assert part in message


def test_lazy_grammars() -> None:
    body = {
        "grammar": GRAMMAR,
        "grammar_lazy": True,
        "preserved_tokens": ["<call>", "two words"],
        "grammar_triggers": [
            {"type": 0, "value": "", "token": 3},
            {"type": 1, "value": "<call>"},
            {"type": 1, "value": "two words"},
            {"type": 2, "value": r"\{(a)"},
            {"type": 3, "value": "x(a)"},
        ],
    }
    sampling = constrained(body)
    assert sampling.grammar_lazy
    assert sampling.preserved_tokens == (7,)
    assert sampling.grammar_triggers == (
        GrammarTrigger(kind="token", value="", token=3),
        GrammarTrigger(kind="token", value="<call>", token=7),
        GrammarTrigger(kind="word", value="two words"),
        GrammarTrigger(kind="pattern", value=r"\{(a)"),
        GrammarTrigger(kind="pattern_full", value="x(a)"),
    )
