"""`docker compose up --wait`, as a user does it, with the tiny model."""

import json
import os
import time
from collections.abc import Iterator

import httpx
import pytest

from tests.support.containers import compose, wait_until
from tests.support.nats_nodes import free_ports

PROJECT = f"llamatape-test-{os.getpid()}"
CHAT = {"messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 60, "temperature": 0}
STREAM = CHAT | {"stream": True}


@pytest.fixture(scope="module")
def url(images: None) -> Iterator[str]:
    (port,) = free_ports(1)
    env = {
        "LLAMATAPE_PORT": str(port),
        "LLAMATAPE_MODELS_DIR": "./tests/models",
        "LLAMATAPE_MODEL": "stories-tiny.gguf",
        "LLAMATAPE_LEASE_S": "2",
        "LLAMA_ARG_CTX_SIZE": "2048",
    }
    try:
        compose("up", "--wait", "--wait-timeout", "120", project=PROJECT, env=env)
        yield f"http://127.0.0.1:{port}"
    finally:
        compose("down", "-v", "-t", "2", project=PROJECT, env=env)


@pytest.fixture
def http(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url, timeout=60) as client:
        yield client


def kill(service: str) -> None:
    compose("kill", service, project=PROJECT)


def start(service: str) -> None:
    compose("start", service, project=PROJECT)


def are_healthy() -> bool:
    listed = compose("ps", "--format", "json", "gateway", project=PROJECT)
    return {json.loads(line)["Health"] for line in listed.splitlines()} == {"healthy"}


def test_a_chat(http: httpx.Client) -> None:
    answer = http.post("/v1/chat/completions", json=CHAT)
    assert answer.status_code == 200, answer.text
    assert answer.json()["usage"]["completion_tokens"] > 0


def test_streams_come_through_the_proxy_as_they_are_made(http: httpx.Client) -> None:
    """Unbuffered: the first frame is there long before the last one."""
    body = STREAM | {"max_tokens": 400, "ignore_eos": True}
    with http.stream("POST", "/v1/chat/completions", json=body) as response:
        assert response.headers["content-type"] == "text/event-stream"
        times = [time.monotonic() for _ in response.iter_raw()]
    assert len(times) > 20
    assert times[-1] - times[0] > 0.3 * (times[-1] - times[len(times) // 2])


def test_the_read_side_replays_what_a_gateway_streamed(http: httpx.Client) -> None:
    head = {"X-Conversation-Id": "compose"}
    whole = http.post("/v1/chat/completions", json=STREAM, headers=head).content
    assert whole.endswith(b"data: [DONE]\n\n")
    rest = http.get("/v1/stream", params={"conv_id": "compose", "from": 100})
    assert rest.content == whole[100:]


def test_engines_die_and_gateways_come_and_go(http: httpx.Client) -> None:
    """One engine is killed while it answers; then the other one serves; then a new gateway is found."""
    head = {"X-Conversation-Id": "dies"}
    body = STREAM | {"max_tokens": 300, "ignore_eos": True}
    with http.stream("POST", "/v1/chat/completions", json=body, headers=head) as response:
        chunks = response.iter_raw()
        whole = next(chunks)
        kill("engine-0")
        whole += b"".join(chunks)
    assert whole.endswith(b"data: [DONE]\n\n")
    start("engine-0")
    compose("restart", "-t", "10", "gateway", project=PROJECT)
    wait_until(are_healthy)
    again = http.get("/v1/stream", params={"conv_id": "dies"})
    assert again.content == whole
    assert http.post("/v1/chat/completions", json=CHAT).status_code == 200


def test_the_registry_is_in_postgres(http: httpx.Client) -> None:
    query = "SELECT name, size_bytes FROM models"
    found = compose(
        *("exec", "-T", "postgres", "psql", "-U", "llamatape", "-tA", "-F", ",", "-c", query),
        project=PROJECT,
    )
    name, size = found.strip().split(",")
    assert name == http.get("/v1/models").json()["data"][0]["id"]
    assert int(size) > 1000


def test_what_was_answered_is_archived(http: httpx.Client) -> None:
    """By the streams service, into PostgreSQL."""
    answer = http.post("/v1/chat/completions", json=CHAT)
    generation_id = answer.headers["x-generation-id"]
    query = f"SELECT outcome FROM archived_generations WHERE generation_id = '{generation_id}'"

    def is_there() -> bool:
        words = ("exec", "-T", "postgres", "psql", "-U", "llamatape", "-tA", "-c", query)
        return compose(*words, project=PROJECT).strip() == "finished"

    wait_until(is_there)


def test_containers_are_not_root(url: str) -> None:
    listed = compose("ps", "--format", "json", project=PROJECT)
    names = {json.loads(line)["Service"] for line in listed.splitlines()}
    assert {"engine-0", "engine-1", "gateway", "streams", "models", "proxy", "nats"} <= names
    for service in ("engine-0", "gateway", "streams", "models"):
        who = compose("exec", "-T", service, "id", "-u", project=PROJECT)
        assert who.strip() == "10001"
