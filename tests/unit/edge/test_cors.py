"""What browsers of other origins are told, and paths below a prefix."""

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.testclient import TestClient

from services.edge.cors import install_cors
from services.edge.cors_policy import CorsPolicy
from services.edge.prefix import install_prefix

EVIL = "http://localhost.evil.com"
ALLOWED = "access-control-allow-origin"


async def path_of(request: Request) -> Response:
    return PlainTextResponse(request.url.path)


def client(policy: CorsPolicy | None = None, prefix: str = "") -> TestClient:
    app = Starlette(routes=[Route("/ask", path_of)])
    install_prefix(app, prefix)
    install_cors(app, policy)
    return TestClient(app)


@pytest.mark.parametrize(
    "origin", ["http://localhost", "http://127.0.0.1:3000", "https://[::1]", "http://[::1]:80"]
)
def test_localhost_means_any_port_of_this_machine(origin: str) -> None:
    for method in ("GET", "OPTIONS"):
        answer = client(CorsPolicy(origins="localhost")).request(
            method, "/ask", headers={"Origin": origin}
        )
        assert answer.headers[ALLOWED] == origin
        assert answer.headers["vary"] == "Origin"


@pytest.mark.parametrize("origin", [EVIL, "http://notlocalhost", "null", "http://[::1", ""])
def test_localhost_means_nobody_else(origin: str) -> None:
    for method in ("GET", "OPTIONS"):
        answer = client(CorsPolicy(origins="localhost")).request(
            method, "/ask", headers={"Origin": origin}
        )
        assert answer.status_code == 200
        assert ALLOWED not in answer.headers


@pytest.mark.parametrize(
    "policy",
    [CorsPolicy(origins="http://a.b"), CorsPolicy(origins="http://a.b", allows_credentials=False)],
)
def test_a_list_is_sent_as_it_is(policy: CorsPolicy) -> None:
    for headers in ({"Origin": EVIL}, {}):
        answer = client(policy).get("/ask", headers=headers)
        assert answer.headers[ALLOWED] == "http://a.b"
        assert "vary" not in answer.headers


def test_any_origin_without_credentials() -> None:
    answer = client(CorsPolicy(allows_credentials=False)).options("/ask", headers={"Origin": EVIL})
    assert answer.headers[ALLOWED] == "*"
    assert answer.headers["access-control-allow-credentials"] == "false"


def test_methods_and_headers_are_told() -> None:
    answer = client(CorsPolicy(methods="GET", headers="X-A")).options("/ask")
    assert answer.headers["access-control-allow-methods"] == "GET"
    assert answer.headers["access-control-allow-headers"] == "X-A"
    assert ALLOWED not in answer.headers


def test_paths_lie_below_the_prefix_and_nowhere_else() -> None:
    served = client(prefix="/llm")
    assert served.get("/llm/ask").text == "/ask"
    for path in ("/ask", "/llm", "/llmask", "/", "/other/ask"):
        answer = served.get(path)
        assert answer.status_code == 404
        assert answer.json()["error"]["type"] == "not_found_error"
