"""Slots of several engines under one numbering."""

import pytest

from schemas.errors import RequestError
from services.gateway.slot_numbers import SlotAddress, address_of, number_of
from services.gateway.slots import slot_number


@pytest.mark.parametrize(
    ("number", "ordinals", "expected"),
    [
        (0, {0}, (0, 0)),
        (5, {0}, (0, 1)),
        (5, {0, 1}, (1, 1)),
        (8, {0, 1}, (0, 0)),
        (5, {0, 2}, (1, 1)),
        (11, {0, 2}, (2, 3)),
        (3, {2}, (0, 3)),
    ],
)
def test_addresses(number: int, ordinals: set[int], expected: tuple[int, int]) -> None:
    assert address_of(number, 4, ordinals) == SlotAddress(*expected)


def test_numbers_and_addresses_belong_together() -> None:
    for number in range(12):
        assert number_of(address_of(number, 4, {0, 1, 2}), 4) == number


@pytest.mark.parametrize("text", ["", "x", "-1", "1.5", "٣", "9" * 10])
def test_what_is_no_number(text: str) -> None:
    with pytest.raises(RequestError):
        slot_number(text)
