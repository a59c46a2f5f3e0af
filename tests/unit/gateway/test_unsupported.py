"""What is not built says so, at each of its addresses."""

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from services.edge.errors import install_error_handlers
from services.gateway.unsupported import UNSUPPORTED, unsupported_routes


@pytest.fixture
def client() -> TestClient:
    app = Starlette(routes=unsupported_routes(1000))
    install_error_handlers(app)
    return TestClient(app)


@pytest.mark.parametrize("path", UNSUPPORTED)
def test_the_address_is_right_but_nobody_is_there(client: TestClient, path: str) -> None:
    response = client.post(path, json={"input": "x"})
    assert response.status_code == 501
    error = response.json()["error"]
    assert (error["code"], error["type"]) == (501, "not_supported_error")
    assert error["message"] == f"This server does not support {UNSUPPORTED[path]}"


def test_there_are_no_adapters(client: TestClient) -> None:
    assert client.get("/lora-adapters").json() == []
    assert client.post("/lora-adapters", json=[]).json() == {"success": True}


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"{}", "Request body must be an array"),
        (b"null", "Request body must be an array"),
        (b'[{"id": 0, "scale": 1}]', "There is no LoRA adapter: none was loaded"),
        (b"[", "not valid JSON"),
    ],
)
def test_scales_of_adapters(client: TestClient, body: bytes, says: str) -> None:
    response = client.post("/lora-adapters", content=body)
    assert response.status_code == 400
    assert says in response.json()["error"]["message"]
