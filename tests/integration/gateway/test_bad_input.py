"""Bad input on every route that takes a body: a clear 4xx, never a 500, and nobody else is hurt."""

import json

import orjson
import pytest

from services.bus.connection import Bus
from tests.support.gateway import Gateway, healthy, running_gateway
from tests.support.scripted_engine import ScriptedEngine

GENERATING = [
    "/completion",
    "/completions",
    "/v1/completions",
    "/chat/completions",
    "/v1/chat/completions",
]
ROUTES = [*GENERATING, "/tokenize", "/detokenize", "/apply-template", "/v1/streams/lookup"]
BAD_BODIES = {
    "empty": b"",
    "malformed": b'{"messages": [',
    "not an object": b"[]",
    "null": b"null",
    "a number": b"12",
    "lone surrogate": b'{"prompt": "\\ud800", "content": "x"}',
    "not UTF-8": b'{"prompt": "\xff\xfe"}',
    "not a number": b'{"temperature": NaN}',
    "brackets": b'{"prompt": ' + b"[" * 200_000 + b"]" * 200_000 + b"}",
    "open brackets": b"[" * 200_000,
    "braces": b'{"a":' * 200_000,
}
BAD_CHATS = [
    {},
    {"messages": None},
    {"messages": []},
    {"messages": "hi"},
    {"messages": [1]},
    {"messages": [{"role": "", "content": "x"}]},
    {"messages": [{"role": "user"}]},
    {"messages": [{"role": "user", "content": 5}]},
    {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
]
USER = [{"role": "user", "content": "x"}]
WRONG_TYPES = [
    {"stream": "yes"},
    {"max_tokens": "many"},
    {"stop": 1},
    {"n": {}},
    {"stream_options": 3},
]
BAD_IDS: list[tuple[str, dict[str, object]]] = [
    ("/tokenize", {"content": 1}),
    ("/tokenize", {"content": None}),
    ("/tokenize", {"content": ["a", -1]}),
    ("/tokenize", {"content": ["a", 999_999]}),
    ("/tokenize", {"content": ["a", 2**80]}),
    ("/tokenize", {"content": [["a"]]}),
    ("/tokenize", {"content": "a", "add_special": "yes"}),
    ("/tokenize", {"content": "a", "with_pieces": 1}),
    ("/detokenize", {"tokens": "a"}),
    ("/detokenize", {"tokens": None}),
    ("/detokenize", {"tokens": [-1]}),
    ("/detokenize", {"tokens": [1.5]}),
    ("/detokenize", {"tokens": [True]}),
    ("/detokenize", {"tokens": [999_999]}),
    ("/detokenize", {"tokens": [2**80]}),
]


async def refused(gateway: Gateway, path: str, content: bytes, says: str = "") -> None:
    """Post `content` and see it refused as an invalid request."""
    response = await gateway.client.post(path, content=content)
    error = response.json()["error"]
    told = (response.status_code, error["code"], error["type"])
    assert told == (400, 400, "invalid_request_error"), (path, content[:80], response.text)
    assert error["message"]
    assert says in error["message"]


@pytest.mark.parametrize("path", ROUTES)
async def test_bodies_that_are_no_objects(
    engine: ScriptedEngine, gateway: Gateway, path: str
) -> None:
    for content in BAD_BODIES.values():
        await refused(gateway, path, content)
    assert engine.prepares == []
    assert (await gateway.client.get("/health")).status_code == 200


@pytest.mark.parametrize("path", ["/chat/completions", "/v1/chat/completions", "/apply-template"])
async def test_chats_that_are_none(engine: ScriptedEngine, gateway: Gateway, path: str) -> None:
    for body in BAD_CHATS:
        await refused(gateway, path, orjson.dumps(body))


@pytest.mark.parametrize("path", GENERATING)
async def test_wrong_types(engine: ScriptedEngine, gateway: Gateway, path: str) -> None:
    for fields in WRONG_TYPES:
        body = {"messages": USER, "prompt": "x", **fields}
        await refused(gateway, path, orjson.dumps(body), says="Field")


async def test_token_ids_that_are_none(engine: ScriptedEngine, gateway: Gateway) -> None:
    for path, body in BAD_IDS:
        await refused(gateway, path, json.dumps(body).encode())


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/tokenize"])
async def test_a_hundred_megabytes(engine: ScriptedEngine, gateway: Gateway, path: str) -> None:
    body = b'{"prompt": "' + b"x" * 100_000_000 + b'"}'
    response = await gateway.client.post(path, content=body)
    assert response.status_code == 413
    assert response.json()["error"]["type"] == "body_too_large_error"
    assert (await gateway.client.get("/health")).status_code == 200


async def test_what_the_broker_cannot_carry(
    bus: Bus, engine: ScriptedEngine, gateway: Gateway
) -> None:
    text = "x" * (9 * 1024 * 1024)
    body = {"prompt": text, "content": text, "messages": [{"role": "user", "content": text}]}
    for path in (*GENERATING, "/tokenize", "/apply-template"):
        response = await gateway.client.post(path, json=body)
        assert response.status_code == 413
        assert response.json()["error"]["type"] == "body_too_large_error"
    assert bus.is_connected


async def test_what_the_log_cannot_keep(bus: Bus, engine: ScriptedEngine, gateway: Gateway) -> None:
    """The question to the engine fits, but not both forms of the request in one entry."""
    prompt = "x" * (bus.nc.max_payload - 100_000)
    engine.script.prompt = prompt
    response = await gateway.client.post("/completion", json={"prompt": prompt})
    assert response.status_code == 413
    await engine.taken.get()
    assert bus.is_connected


async def test_a_body_limit_of_its_own(bus: Bus, engine: ScriptedEngine, gateway: Gateway) -> None:
    async with running_gateway(bus, gateway.model_key, max_body_bytes=100) as strict:
        await healthy(strict)
        for path in GENERATING:
            assert (await strict.client.post(path, content=b"x" * 101)).status_code == 413
            assert (await strict.client.post(path, content=b"x" * 100)).status_code == 400


async def test_a_form_is_a_body_too(engine: ScriptedEngine, gateway: Gateway) -> None:
    form = {"prompt": (None, "Once"), "model": (None, "any")}
    answer = await gateway.client.post("/completion", files=form)
    assert answer.status_code == 200, answer.text
    assert json.loads(engine.prepares[-1].body)["prompt"] == "Once"
    broken = await gateway.client.post(
        "/completion", content=b"--x", headers={"content-type": "multipart/form-data; boundary=x"}
    )
    assert broken.status_code == 400
