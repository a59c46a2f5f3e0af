"""An answer's thinking is ended from outside while it is being generated."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.support.platform import client, serve, url_of

CONTROL = "/v1/chat/completions/control"
CONVERSATION = {"x-conversation-id": "tale"}
TALE = {
    "prompt": "Once upon a time there was a little girl",
    "n_predict": 900,
    "seed": 1,
    "stream": True,
    "ignore_eos": True,
    "reasoning_budget_start_tag": "named",
    "reasoning_budget_end_tag": "END",
    "logit_bias": [["named", 3]],
}
UNKNOWN = {"success": False, "message": "no active completion for this id"}


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with (
        serve(tmp_path_factory.mktemp("control")) as session,
        client(url_of(session)) as http,
    ):
        yield http


def stream(http: httpx.Client, body: dict[str, Any], when_thinking: Any) -> tuple[str, str]:
    """Text and generation id of a streamed answer; `when_thinking(id)` is called once it thinks."""
    text, is_told = "", False
    with http.stream("POST", "/completion", json=body, headers=CONVERSATION) as response:
        generation_id = response.headers["x-generation-id"]
        for line in response.iter_lines():
            if line.startswith("data: {"):
                text += json.loads(line[6:])["content"]
            if " named" in text and not is_told:
                is_told = True
                when_thinking(generation_id)
    assert is_told, text
    return text, generation_id


def order(http: httpx.Client, body: dict[str, Any], **headers: str) -> dict[str, Any]:
    response = http.post(
        CONTROL, json={"action": "reasoning_end", **body}, headers=dict(headers) or None
    )
    assert response.status_code == 200, response.text
    return response.json()


def test_thinking_ends_when_it_is_ordered(http: httpx.Client) -> None:
    answers: list[dict[str, Any]] = []
    body = TALE | {"reasoning_control": True}
    text, generation_id = stream(
        http,
        body,
        lambda id_: answers.append(order(http, {"id": f"chatcmpl-{id_.replace('-', '')}"})),
    )
    assert answers == [{"success": True}]
    assert text.count(" END") == 1
    assert order(http, {"id": generation_id}) == UNKNOWN, "it is over"


def test_a_conversation_names_its_answer(http: httpx.Client) -> None:
    answers: list[dict[str, Any]] = []
    text, _ = stream(
        http,
        TALE | {"reasoning_control": True},
        lambda _: answers.append(order(http, {}, **CONVERSATION)),
    )
    assert (answers, text.count(" END")) == ([{"success": True}], 1)


def test_what_is_not_armed_is_not_controlled(http: httpx.Client) -> None:
    answers: list[dict[str, Any]] = []
    text, _ = stream(http, TALE, lambda id_: answers.append(order(http, {"id": id_})))
    message = "reasoning control not enabled for this completion"
    assert answers == [{"success": False, "message": message}]
    assert " END" not in text


def test_a_budget_ends_thinking_by_itself(http: httpx.Client) -> None:
    body = TALE | {"reasoning_budget_tokens": 4, "reasoning_budget_message": "Enough"}
    text, _ = stream(http, body, lambda _: None)
    assert " Enough END" in text


@pytest.mark.parametrize("shown", ["chatcmpl-x", "x", f"chatcmpl-{'0' * 32}"])
def test_unknown_answers(http: httpx.Client, shown: str) -> None:
    assert order(http, {"id": shown}) == UNKNOWN


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"action": "reasoning_end"}, "missing completion id"),
        ({"id": "", "action": "reasoning_end"}, "missing completion id"),
        ({"id": "x"}, "unknown control action"),
        ({"id": "x", "action": "stop"}, "unknown control action"),
    ],
)
def test_orders_that_say_too_little(http: httpx.Client, body: dict[str, Any], message: str) -> None:
    response = http.post(CONTROL, json=body)
    assert response.status_code == 400
    assert response.json()["error"]["message"] == message
