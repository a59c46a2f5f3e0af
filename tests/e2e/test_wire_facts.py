"""What users of such servers most often report, as facts of the wire. On a real (tiny) model."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.support import platform

CHAT = "/v1/chat/completions"
ASKED: dict[str, Any] = {
    "messages": [{"role": "user", "content": "Once upon a time"}],
    "max_tokens": 12,
    "temperature": 0,
    "seed": 1,
}
CALL = {"type": "function", "function": {"name": "ls", "arguments": "{}"}}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    folder = tmp_path_factory.mktemp("facts")
    flags = ("-np", "4", "-c", "4096")
    with (
        platform.serve(folder, platform.TINY, *flags) as session,
        platform.client(platform.url_of(session)) as found,
    ):
        yield found


def post(client: httpx.Client, path: str, **body: Any) -> Any:
    answer = client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def chunks_of(client: httpx.Client, path: str, **body: Any) -> list[Any]:
    """The chunks of a stream, which `[DONE]` ends."""
    answer = client.post(path, json=body | {"stream": True})
    assert answer.status_code == 200, answer.text
    frames = [line[6:] for line in answer.text.splitlines() if line.startswith("data: ")]
    assert frames.pop() == "[DONE]"
    return [json.loads(frame) for frame in frames]


@pytest.mark.parametrize("n", [1, 2])
def test_the_usage_chunk_is_the_last_one_and_has_no_choices(client: httpx.Client, n: int) -> None:
    chunks = chunks_of(client, CHAT, **ASKED, n=n, stream_options={"include_usage": True})
    assert chunks[-1]["choices"] == []
    usage = chunks[-1]["usage"]
    assert usage["completion_tokens"] == 12 * n
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert all(chunk["choices"] and "usage" not in chunk for chunk in chunks[:-1])


def test_without_asking_there_is_no_usage_chunk(client: httpx.Client) -> None:
    assert all(chunk["choices"] for chunk in chunks_of(client, CHAT, **ASKED))


def test_there_is_exactly_one_finish_reason_and_it_comes_last(client: httpx.Client) -> None:
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks_of(client, CHAT, **ASKED)]
    assert reasons == [None] * (len(reasons) - 1) + ["length"]


def test_the_role_is_said_once_and_first(client: httpx.Client) -> None:
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks_of(client, CHAT, **ASKED)]
    assert ["role" in delta for delta in deltas] == [True] + [False] * (len(deltas) - 1)


@pytest.mark.parametrize("call_id", ["call_1", None, ""])
def test_what_an_assistant_said_is_taken_back(client: httpx.Client, call_id: str | None) -> None:
    messages = [
        *ASKED["messages"],
        {"role": "assistant", "content": None, "tool_calls": [{"id": call_id, **CALL}]},
        {"role": "tool", "tool_call_id": call_id, "content": [{"type": "text", "text": "out"}]},
        {"role": "assistant", "content": None, "tool_calls": None},
        {"role": "user", "content": "And then?"},
    ]
    answer = post(client, CHAT, **ASKED | {"messages": messages})
    assert answer["choices"][0]["message"]["role"] == "assistant"


def test_a_tool_call_without_an_id_is_no_error(client: httpx.Client) -> None:
    messages = [
        *ASKED["messages"],
        {"role": "assistant", "tool_calls": [CALL]},
        {"role": "tool", "content": "out"},
    ]
    assert post(client, CHAT, **ASKED | {"messages": messages})["choices"]


@pytest.mark.parametrize("path", [CHAT, "/v1/completions"])
def test_several_choices_have_indexes_of_their_own(client: httpx.Client, path: str) -> None:
    body = {**ASKED, "prompt": "Once", "n": 3, "temperature": 1.0}
    if path != CHAT:
        del body["messages"]
    answer = post(client, path, **body)
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]
    streamed = [choice for chunk in chunks_of(client, path, **body) for choice in chunk["choices"]]
    reasons = {c["index"]: c["finish_reason"] for c in streamed if c["finish_reason"]}
    assert reasons == dict.fromkeys(range(3), "length")


def greedy(client: httpx.Client, **fields: Any) -> str:
    body = {"prompt": "Once upon a time", "n_predict": 40, "temperature": 0, **fields}
    whole = post(client, "/completion", **body)["content"]
    answer = client.post("/completion", json=body | {"stream": True})
    frames = [line[6:] for line in answer.text.splitlines() if line.startswith("data: ")]
    assert "".join(json.loads(frame)["content"] for frame in frames) == whole
    return whole


def test_a_stop_string_cut_over_tokens_neither_leaks_nor_swallows(client: httpx.Client) -> None:
    text = greedy(client)
    for start in range(5, len(text) - 9, 7):
        stop = text[start : start + 9]
        assert greedy(client, stop=[stop]) == text[: text.index(stop)]


def test_a_stop_string_that_only_begins_is_content(client: httpx.Client) -> None:
    text = greedy(client)
    assert greedy(client, stop=[text[10:20] + "~", text[-4:] + "~"]) == text


def ids_of(client: httpx.Client, text: str) -> list[Any]:
    body = {"content": text, "with_pieces": True}
    return post(client, "/tokenize", **body)["tokens"]


def test_bytes_that_are_no_character_become_a_replacement(client: httpx.Client) -> None:
    """A model is made to say the first byte of an emoji and no other."""
    first = next(token["id"] for token in ids_of(client, "😀") if token["piece"] == [0xF0])
    text = greedy(client, logit_bias=[[first, 1000]], n_predict=4)
    assert text
    assert set(text) == {"\ufffd"}


def test_a_character_cut_over_tokens_is_never_lost(client: httpx.Client) -> None:
    tokens = ids_of(client, "😀")
    assert any(isinstance(token["piece"], list) for token in tokens), "one token: nothing is cut"
    assert greedy(client, grammar='root ::= "😀🦊"', n_predict=20) == "😀🦊"


def test_probabilities_of_a_cut_character_hold_its_bytes(client: httpx.Client) -> None:
    body = {"prompt": "x", "n_predict": 9, "grammar": 'root ::= "😀"', "n_probs": 1}
    answer = post(client, "/completion", **body)
    found = answer["completion_probabilities"]
    assert bytes(byte for token in found for byte in token["bytes"]).decode().strip() == "😀"
