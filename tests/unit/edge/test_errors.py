"""Error bodies, and exceptions that become them."""

import orjson
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.testclient import TestClient

from schemas.errors import EXCEED_CONTEXT_SIZE, UNAVAILABLE, Problem, RequestError
from services.edge.errors import install_error_handlers, problem_body, problem_response


class BrokerAway(Exception):
    """Stands for the bus's errors."""


ERRORS: dict[str, Exception] = {
    "invalid": RequestError.invalid("Field 'n': expected a number", "n"),
    "missing": RequestError.not_found("no such stream"),
    "away": BrokerAway("10.0.0.1:4222 refused"),
    "bug": KeyError("secret detail"),
}


async def fail(request: Request) -> Response:
    raise ERRORS[request.path_params["kind"]]


@pytest.fixture
def client() -> TestClient:
    app = Starlette(routes=[Route("/fail/{kind}", fail, methods=["POST"])])
    install_error_handlers(app, unavailable=[BrokerAway])
    return TestClient(app, raise_server_exceptions=False)


def test_the_context_size_error_has_its_numbers() -> None:
    problem = Problem(code=EXCEED_CONTEXT_SIZE, message="too long", n_prompt_tokens=9, n_ctx=8)
    assert orjson.loads(problem_body(problem)) == {
        "error": {
            "code": 400,
            "message": "too long",
            "type": "exceed_context_size_error",
            "n_prompt_tokens": 9,
            "n_ctx": 8,
        }
    }


def test_what_may_pass_says_when_to_try_again() -> None:
    response = problem_response(Problem(code=UNAVAILABLE, message="busy", retry_after_s=3))
    assert (response.status_code, response.headers["retry-after"]) == (503, "3")


def test_a_request_error_is_its_problem(client: TestClient) -> None:
    response = client.post("/fail/invalid")
    assert response.status_code == 400
    assert response.json()["error"] == {
        "code": 400,
        "message": "Field 'n': expected a number",
        "type": "invalid_request_error",
        "param": "n",
    }
    assert client.post("/fail/missing").status_code == 404


def test_a_broken_bus_is_a_503_that_tells_nothing(client: TestClient) -> None:
    response = client.post("/fail/away")
    assert (response.status_code, response.headers["retry-after"]) == (503, "1")
    assert response.json()["error"]["type"] == "unavailable_error"
    assert "10.0.0.1" not in response.text


def test_an_unexpected_error_is_a_500_that_tells_nothing(client: TestClient) -> None:
    response = client.post("/fail/bug")
    assert response.status_code == 500
    assert response.json()["error"] == {
        "code": 500,
        "message": "Internal Server Error",
        "type": "server_error",
    }


def test_an_unknown_route_is_llama_servers_404(client: TestClient) -> None:
    response = client.get("/nowhere")
    assert response.status_code == 404
    assert response.json() == {
        "error": {"code": 404, "message": "File Not Found", "type": "not_found_error"}
    }


def test_a_wrong_method_is_a_405(client: TestClient) -> None:
    response = client.get("/fail/bug")
    assert (response.status_code, response.headers["allow"]) == (405, "POST")
    assert response.json()["error"]["code"] == 405
