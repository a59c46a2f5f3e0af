"""What a request says beside its dialect."""

import pytest

from schemas.errors import RequestError
from services.gateway.asking import idempotency_of, priority_of, request_hash


@pytest.mark.parametrize(
    ("headers", "body", "expected"),
    [
        ({}, {}, "interactive"),
        ({}, {"priority": "batch"}, "batch"),
        ({"x-priority": "batch"}, {}, "batch"),
        ({"x-priority": "batch"}, {"priority": "interactive"}, "interactive"),
        ({"x-priority": "batch"}, {"priority": None}, "batch"),
        ({}, {"priority": 0}, "interactive"),
        ({}, {"priority": -3}, "interactive"),
        ({}, {"priority": 7}, "batch"),
        ({}, {"service_tier": "flex"}, "batch"),
        ({}, {"service_tier": "auto"}, "interactive"),
        ({}, {"service_tier": "flex", "priority": "interactive"}, "interactive"),
    ],
)
def test_priority(headers: dict[str, str], body: dict[str, object], expected: str) -> None:
    assert priority_of(headers, body) == expected


@pytest.mark.parametrize("value", ["urgent", "", True, 1.5, ["batch"], {}])
def test_a_priority_that_is_none(value: object) -> None:
    with pytest.raises(RequestError, match="'interactive' or 'batch'"):
        priority_of({}, {"priority": value})


def test_a_header_that_is_none() -> None:
    with pytest.raises(RequestError, match="X-Priority"):
        priority_of({"x-priority": "urgent"}, {})


def test_no_key_is_no_key() -> None:
    assert idempotency_of({}, path="/x", dialect="d", body={}) is None


@pytest.mark.parametrize("key", ["a", "x" * 255, "550e8400-e29b-41d4-a716-446655440000", "a b"])
def test_keys(key: str) -> None:
    found = idempotency_of({"idempotency-key": key}, path="/x", dialect="d", body={})
    assert found is not None
    assert found.key == key


@pytest.mark.parametrize("key", ["", "x" * 256, "a\tb", "ä"])
def test_keys_that_are_none(key: str) -> None:
    with pytest.raises(RequestError, match="1 to 255 printable"):
        idempotency_of({"idempotency-key": key}, path="/x", dialect="d", body={})


def test_equal_requests_have_equal_hashes() -> None:
    first = request_hash("/x", "d", {"a": 1, "b": {"c": [1, 2], "d": None}})
    assert first == request_hash("/x", "d", {"b": {"d": None, "c": [1, 2]}, "a": 1})
    others = [
        request_hash("/y", "d", {"a": 1}),
        request_hash("/x", "e", {"a": 1}),
        request_hash("/x", "d", {"a": 2}),
        request_hash("/x", "d", {"a": 1.0}),
        request_hash("/x", "d", {"a": "1"}),
    ]
    assert len({first, *others}) == 6
