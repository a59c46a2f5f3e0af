"""The server does what its description says, and no input makes it fail. On a real (tiny) model."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import CheckFunction
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from services.gateway.openapi import description
from tests.support import platform

CHECKS: list[CheckFunction] = [
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
]
BOUNDED = settings(
    max_examples=6,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
FLAGS = ("-np", "4", "-c", "1024", "-n", "16", "--props", "--metrics")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("openapi")
    with platform.serve(folder, platform.TINY, *FLAGS) as session:
        yield platform.url_of(session)


SCHEMA = schemathesis.openapi.from_dict(description())
OPERATIONS = [
    (path, method)
    for path, methods in description()["paths"].items()
    for method in methods  # type: ignore[attr-defined]
]


@pytest.mark.parametrize(("path", "method"), OPERATIONS)
def test_no_input_makes_it_fail(url: str, path: str, method: str) -> None:
    @BOUNDED
    @given(case=SCHEMA[path][method].as_strategy())
    def ask(case: Any) -> None:
        response = case.call(base_url=url, timeout=60)
        assert response.status_code != 500, response.text
        case.validate_response(response, checks=CHECKS)

    ask()


def test_the_examples_work(url: str) -> None:
    document = httpx.get(f"{url}/openapi.json").json()
    schemas = document["components"]["schemas"]
    for path, methods in document["paths"].items():
        body = methods.get("post", {}).get("requestBody")
        if body is None:
            continue
        name = body["content"]["application/json"]["schema"]["$ref"].rsplit("/")[-1]
        for example in schemas[name].get("examples", ()):  # none where it hangs on a server's state
            answer = httpx.post(f"{url}{path}", json=example, timeout=60)
            assert answer.status_code == 200, (path, answer.text)
            assert json.loads(answer.text) is not None
