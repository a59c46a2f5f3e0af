"""Ranges of numbers as grammars."""

from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.engine.grammar.numbers import Bounds, decimals, integers
from tests.support.grammars import matches


def is_inside(bounds: Bounds, value: Decimal) -> bool:
    is_above = (
        bounds.low is None or value > bounds.low or (value == bounds.low and not bounds.is_above)
    )
    is_below = (
        bounds.high is None or value < bounds.high or (value == bounds.high and not bounds.is_below)
    )
    return is_above and is_below


def accepts(element: str | None, value: Decimal) -> bool:
    return element is not None and matches(f"root ::= {element}", f"{value or abs(value):f}")


BOUND = st.none() | st.decimals(-10_000, 10_000, places=2) | st.integers(-200, 200).map(Decimal)
BOUNDS = st.builds(Bounds, BOUND, BOUND, st.booleans(), st.booleans())


@given(BOUNDS, st.integers(-300, 300), st.integers(0, 3))
@settings(max_examples=200, deadline=None)
def test_what_is_accepted_lies_within(bounds: Bounds, offset: int, places: int) -> None:
    near = next((b for b in (bounds.low, bounds.high) if b is not None), Decimal(0))
    value = near + Decimal(offset).scaleb(-places)
    assert accepts(decimals(bounds), value) == is_inside(bounds, value)
    whole = value.to_integral_value()
    assert accepts(integers(bounds), whole) == is_inside(bounds, whole)


@pytest.mark.parametrize("text", ["007", "-0", "1.5", "", "1e3", "+1", " 1", "1."])
def test_numbers_that_are_written_otherwise(text: str) -> None:
    element = integers(Bounds(Decimal(-50), Decimal(5000)))
    assert not matches(f"root ::= {element}", text)


def test_numbers_have_an_end() -> None:
    element = integers(Bounds(Decimal(3), None))
    assert matches(f"root ::= {element}", "9" * 16)
    assert not matches(f"root ::= {element}", "9" * 17)


@pytest.mark.parametrize(
    "bounds",
    [
        Bounds(Decimal(2), Decimal(1)),
        Bounds(Decimal("1.2"), Decimal("1.8")),
        Bounds(Decimal(1), Decimal(2), is_above=True, is_below=True),
    ],
)
def test_no_whole_number_at_all(bounds: Bounds) -> None:
    assert integers(bounds) is None


def test_bounds_of_many_digits() -> None:
    low, high = Decimal("-123456789012345678"), Decimal("123456789012345678")
    element = integers(Bounds(low, high))
    assert accepts(element, low)
    assert accepts(element, high)
    assert not accepts(element, high + 1)
    assert not accepts(element, low - 1)
