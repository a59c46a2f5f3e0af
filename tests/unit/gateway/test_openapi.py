"""The description of the API against the routes themselves, and its examples against its schemas."""

from collections.abc import Iterator
from typing import Any, cast

import pytest
from jsonschema import Draft202012Validator
from starlette.routing import BaseRoute, Route

from services.bus.connection import Bus
from services.bus.log import LogWriter
from services.gateway.bootstrap import create_app
from services.gateway.config import GatewaySettings
from services.gateway.openapi import description
from services.gateway.openapi.requests import REQUESTS
from services.streams.audit.routes import AuditRoutes, Door
from services.streams.bootstrap import create_router
from services.streams.config import StreamsSettings
from services.streams.conversations import Conversations
from services.streams.hub import Hub
from tests.support.fake_logs import FakeKeys, FakeLogs

METHODS = {"get", "post", "delete"}
DOCUMENT: Any = description()


def routes() -> list[BaseRoute]:
    """All of a gateway; nothing is called, so that no bus is needed."""
    logs, nobody = FakeLogs(), cast(Any, None)
    hub, keys = Hub(logs, StreamsSettings()), FakeKeys()
    conversations = Conversations(keys, logs)
    bus, writer = cast(Bus, nobody), cast(LogWriter, nobody)
    app = create_app(bus, GatewaySettings(), hub, conversations, writer)
    audit = AuditRoutes(cast(Door, nobody)).router()
    return [*app.routes, *create_router(hub, conversations, writer).routes, *audit.routes]


def served() -> Iterator[tuple[str, str]]:
    for route in routes():
        assert isinstance(route, Route)
        for method in route.methods or ():
            if method.lower() in METHODS:
                yield route.path, method.lower()


def described() -> Iterator[tuple[str, str]]:
    for path, methods in DOCUMENT["paths"].items():
        for method in methods:
            yield path, method


def test_every_route_is_described_and_nothing_else() -> None:
    assert set(described()) == set(served())


def test_what_it_refers_to_is_there() -> None:
    def refs(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            found = cast("dict[str, Any]", value)
            if "$ref" in found:
                yield found["$ref"]
            for each in found.values():
                yield from refs(each)
        elif isinstance(value, list):
            for each in cast("list[Any]", value):
                yield from refs(each)

    schemas = DOCUMENT["components"]["schemas"]
    names = {each.removeprefix("#/components/schemas/") for each in refs(DOCUMENT)}
    assert names <= set(schemas)
    assert set(schemas) <= names | {"Timings", "OneCompletion"}


@pytest.mark.parametrize("name", [name for name in REQUESTS if "examples" in REQUESTS[name]])
def test_examples_fit_their_schemas(name: str) -> None:
    schema = {"$ref": f"#/components/schemas/{name}", "components": DOCUMENT["components"]}
    for example in cast("list[Any]", REQUESTS[name]["examples"]):
        Draft202012Validator(schema).validate(example)
