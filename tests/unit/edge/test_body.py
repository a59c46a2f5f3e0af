"""Bodies: what is let through, and what is refused before anything parses it."""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.testclient import TestClient

from schemas.errors import RequestError
from services.edge.body import (
    MAX_DEPTH,
    check_depth,
    install_body_handlers,
    parse_object,
    read_json,
)
from services.edge.errors import install_error_handlers

LIMIT = 1000


async def echo(request: Request) -> Response:
    return JSONResponse(await read_json(request, LIMIT))


@pytest.fixture
def client() -> TestClient:
    app = Starlette(routes=[Route("/echo", echo, methods=["POST"])])
    install_error_handlers(app)
    install_body_handlers(app)
    return TestClient(app)


@pytest.mark.parametrize("content_type", [None, "text/plain", "application/x-www-form-urlencoded"])
def test_any_content_type_is_json(client: TestClient, content_type: str | None) -> None:
    headers = {} if content_type is None else {"content-type": content_type}
    response = client.post("/echo", content=b'{"a": [1, "\xc3\xa4"]}', headers=headers)
    assert response.json() == {"a": [1, "ä"]}


def test_a_byte_order_mark_is_no_part_of_the_body(client: TestClient) -> None:
    assert client.post("/echo", content=b'\xef\xbb\xbf{"a": 1}').json() == {"a": 1}
    assert client.post("/echo", content=b'\xef\xbb\xbf\xef\xbb\xbf{"a": 1}').status_code == 400


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b'{"a": NaN}', "not valid JSON"),
        (b'{"a": 1e999}', "not valid JSON"),
        (b'{"a": "\\ud800"}', "not valid JSON"),
        (b'{"a": "\xff"}', "not valid JSON"),
        (b"[1]", "must be a JSON object"),
        (b'"text"', "must be a JSON object"),
        (b"null", "must be a JSON object"),
        (b"[" * 900, "nested deeper"),
        (b'{"a":' * 180, "nested deeper"),
    ],
)
def test_what_is_no_object_is_a_400(client: TestClient, body: bytes, says: str) -> None:
    response = client.post("/echo", content=body)
    assert response.status_code == 400
    error = response.json()["error"]
    assert (error["code"], error["type"]) == (400, "invalid_request_error")
    assert says in error["message"]


def test_a_body_over_the_limit_is_a_413(client: TestClient) -> None:
    response = client.post("/echo", content=b'{"a": "' + b"x" * LIMIT + b'"}')
    assert response.status_code == 413
    error = response.json()["error"]
    assert (error["code"], error["type"]) == (413, "body_too_large_error")
    assert response.headers["connection"] == "close"


def test_so_is_one_without_an_announced_length(client: TestClient) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(20):
            yield b"x" * 100

    response = client.post("/echo", content=chunks())
    assert response.status_code == 413


async def test_an_announced_length_over_the_limit_is_refused_unread() -> None:
    async def receive() -> dict[str, object]:
        raise AssertionError("the body was read")

    headers = [(b"content-length", b"104857600")]
    request = Request({"type": "http", "method": "POST", "headers": headers}, receive)
    with pytest.raises(RequestError) as caught:
        await read_json(request, LIMIT)
    assert caught.value.problem.status == 413


def test_brackets_in_strings_do_not_count() -> None:
    text = '{"a": "' + "[" * 5000 + '", "b": "\\"[[' + "{" * 5000 + '"}'
    assert parse_object(text.encode())["a"] == "[" * 5000


def test_many_shallow_containers_are_fine() -> None:
    check_depth(b"[" + b"[],{}," * 10_000 + b"0]")


def test_the_depth_limit_is_exact() -> None:
    check_depth(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH + b"[]")
    with pytest.raises(RequestError):
        check_depth(b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1))


def test_too_many_containers_are_refused_without_a_walk() -> None:
    with pytest.raises(RequestError, match="lists and objects"):
        check_depth(b"[]" * 1_100_000)


def to_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def status_of(data: bytes) -> int:
    try:
        parse_object(data)
    except RequestError as error:
        return error.problem.status
    return 200


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.binary(max_size=200) | st.text(alphabet='[]{}":,\\\ud8001aé ', max_size=60).map(to_bytes))
def test_bytes_never_do_anything_but_parse_or_refuse(data: bytes) -> None:
    assert status_of(data) in (200, 400)
