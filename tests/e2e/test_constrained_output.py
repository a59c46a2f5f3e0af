"""Constrained output as clients ask for it: valid JSON, streamed and not, and refusals that name the property."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import jsonschema
import pytest

from tests.support import platform

SCHEMA = {
    "type": "object",
    "properties": {
        "animal": {"enum": ["fox", "owl", "hedgehog"]},
        "legs": {"type": "integer", "minimum": 0, "maximum": 8},
        "name": {"type": "string", "minLength": 2, "maxLength": 20},
    },
    "required": ["animal", "legs", "name"],
    "additionalProperties": False,
}
ASK = [{"role": "user", "content": "Describe an animal of the forest as JSON."}]
DEEP: Any = {"type": "integer"}
for _ in range(60):
    DEEP = {"type": "array", "items": DEEP}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    folder = tmp_path_factory.mktemp("constrained")
    flags = ("-np", "4", "-c", "4096", "-t", "1")
    with (
        platform.serve(folder, platform.demo_model(), *flags) as session,
        platform.client(platform.url_of(session)) as found,
    ):
        yield found


def text_of(client: httpx.Client, path: str, body: dict[str, Any]) -> str:
    """The text of an answer, put together from its parts where it is streamed."""
    response = client.post(path, json=body)
    assert response.status_code == 200
    if body["stream"]:
        lines = [line[6:] for line in response.text.splitlines() if line.startswith("data: {")]
        answers = [json.loads(line) for line in lines]
    else:
        answers = [response.json()]
    return "".join(_part(answer) for answer in answers)


def _part(answer: dict[str, Any]) -> str:
    if "choices" not in answer:
        return answer["content"]
    if not answer["choices"]:
        return ""
    choice = answer["choices"][0]
    message = choice.get("delta") or choice.get("message") or choice
    return message.get("content") or message.get("text") or ""


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/completion", {"prompt": "An animal:", "n_predict": 120, "json_schema": SCHEMA}),
        (
            "/v1/completions",
            {"prompt": "x", "max_tokens": 120, "response_format": {"type": "json_object", "schema": SCHEMA}},
        ),
        (
            "/v1/chat/completions",
            {
                "messages": ASK,
                "max_tokens": 120,
                "response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}},
            },
        ),
        ("/v1/chat/completions", {"messages": ASK, "max_tokens": 120, "json_schema": SCHEMA}),
    ],
)  # fmt: skip
def test_the_answer_is_valid(
    client: httpx.Client, path: str, body: dict[str, Any], stream: bool
) -> None:
    text = text_of(client, path, body | {"seed": 3, "temperature": 1.0, "stream": stream})
    jsonschema.validate(json.loads(text), SCHEMA)


def test_a_grammar(client: httpx.Client) -> None:
    body = {"prompt": "Say yes or no:", "n_predict": 20, "grammar": 'root ::= "yes" | "no"'}
    assert client.post("/completion", json=body).json()["content"] in ("yes", "no")


def test_several_choices_are_each_valid(client: httpx.Client) -> None:
    form = {"type": "json_schema", "json_schema": {"schema": SCHEMA}}
    body = {"messages": ASK, "n": 3, "max_tokens": 120, "temperature": 1.2, "response_format": form}
    answer = client.post("/v1/chat/completions", json=body).json()
    texts = [choice["message"]["content"] for choice in answer["choices"]]
    assert len(texts) == 3
    for text in texts:
        jsonschema.validate(json.loads(text), SCHEMA)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"grammar": "root ::= " + "(" * 60_000 + '"a"' + ")" * 60_000}, "grammar"),
        ({"grammar": "root ::= x"}, "grammar"),
        ({"json_schema": {"type": "kaboom"}}, "json_schema"),
        ({"response_format": {"type": "json_object", "schema": {"type": 1}}}, "response_format.schema"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {"not": {}}}}},
            "response_format.json_schema.schema",
        ),
        ({"grammar": 'root ::= "a"', "grammar_lazy": True}, "grammar_lazy"),
    ],
)  # fmt: skip
def test_refusals_name_the_property(client: httpx.Client, body: dict[str, Any], param: str) -> None:
    answer = client.post("/v1/chat/completions", json={"messages": ASK, "max_tokens": 5, **body})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param
    answer = client.post("/v1/completions", json={"prompt": "x", "max_tokens": 5, **body})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


def test_nothing_of_it_hurts_others(client: httpx.Client) -> None:
    body = '{"prompt": "x", "json_schema": ' + '{"items": ' * 3000 + "{}" + "}" * 3001
    assert client.post("/completion", content=body).status_code == 400
    explosive = 'root ::= "a" root "x" | "a" root "y" | [b-z ] root "z" | [b-z ] root "w"'
    answer = client.post(
        "/completion", json={"prompt": "x", "n_predict": 300, "grammar": explosive}
    )
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "grammar"
    fine = {"prompt": "x", "n_predict": 5, "json_schema": DEEP}
    assert client.post("/completion", json=fine).status_code == 200
