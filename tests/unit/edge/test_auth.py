"""Keys: which requests pass, and who the log says was asking."""

import hashlib

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.testclient import TestClient

from services.edge.auth import install_auth
from services.edge.cors import install_cors
from services.edge.errors import install_error_handlers
from services.edge.key_ring import KeyRing, key_id

KEY = "sk-secret"


async def whoami(request: Request) -> Response:
    return PlainTextResponse(request.state.caller)


def client(*api_keys: str) -> TestClient:
    paths = ("/", "/health", "/v1/health", "/v1/models", "/ask")
    app = Starlette(routes=[Route(path, whoami) for path in paths])
    install_error_handlers(app)
    install_auth(app, KeyRing(api_keys))
    install_cors(app)
    return TestClient(app)


def test_without_keys_everybody_may_ask_and_is_nobody() -> None:
    response = client().get("/ask")
    assert (response.status_code, response.text) == (200, "")


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": f"Bearer {KEY}"},
        {"Authorization": KEY},
        {"X-Api-Key": KEY},
        {"x-api-key": f"Bearer {KEY}"},
    ],
)
def test_a_known_key_passes_and_names_the_caller(headers: dict[str, str]) -> None:
    response = client("other", KEY).get("/ask", headers=headers)
    assert response.status_code == 200
    assert response.text == hashlib.sha256(KEY.encode()).hexdigest()[:12] == key_id(KEY)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Bearer "},
        {"Authorization": "Basic eDp5", "X-Api-Key": KEY},
        {"X-Api-Key": KEY + "x"},
        {"Authorization": b"Bearer \xff\xfe"},
    ],
)
@pytest.mark.parametrize("path", ["/ask", "/v1/models", "/nowhere"])
def test_anything_else_is_refused(headers: dict[str, str], path: str) -> None:
    response = client(KEY).get(path, headers=headers)
    assert response.status_code == 401
    assert response.json() == {
        "error": {"code": 401, "message": "Invalid API Key", "type": "authentication_error"}
    }


@pytest.mark.parametrize("path", ["/", "/health", "/v1/health"])
def test_public_paths_need_no_key(path: str) -> None:
    response = client(KEY).get(path)
    assert (response.status_code, response.text) == (200, "")


def test_a_public_path_knows_its_caller_all_the_same() -> None:
    response = client(KEY).get("/health", headers={"X-Api-Key": KEY})
    assert response.text == key_id(KEY)


def test_the_origin_is_reflected_on_refusals_too() -> None:
    response = client(KEY).get("/ask", headers={"Origin": "http://page.example"})
    assert response.status_code == 401
    assert response.headers["access-control-allow-origin"] == "http://page.example"


def test_a_preflight_needs_no_key() -> None:
    response = client(KEY).options("/ask", headers={"Origin": "web.mydomain.fr"})
    assert response.status_code == 200
    assert response.content == b""
    assert response.headers["access-control-allow-origin"] == "web.mydomain.fr"
    assert response.headers["access-control-allow-credentials"] == "true"
    assert response.headers["access-control-allow-methods"] == "GET, POST, DELETE, OPTIONS"
    assert response.headers["access-control-allow-headers"] == "*"


def test_without_an_origin_no_cross_origin_header_is_sent() -> None:
    assert "access-control-allow-origin" not in client().get("/ask").headers
