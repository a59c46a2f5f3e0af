"""Queries of the audit: times, cursors, what is refused."""

import datetime

import pytest

from schemas.errors import RequestError
from services.streams.audit.filters import (
    Cursor,
    Filter,
    PageQuery,
    parse_cursor,
    parse_day,
    parse_moment,
    parse_query,
)

DAY_MS = 86_400_000
NEW_YEAR_MS = 1_767_225_600_000
ID = "01936b5e-4c00-7abc-8def-0123456789ab"


def test_nothing_asked_for_is_everything() -> None:
    assert parse_query({}) == PageQuery()
    assert parse_query({"caller": "", "unknown": "x"}) == PageQuery(wanted=Filter())


@pytest.mark.parametrize(
    ("text", "at_ms"),
    [
        ("2026-01-01", NEW_YEAR_MS),
        ("2026-01-01T00:00:00Z", NEW_YEAR_MS),
        ("2026-01-01T01:00:00+01:00", NEW_YEAR_MS),
        ("2026-01-01 00:00:01.5", NEW_YEAR_MS + 1500),
        (str(NEW_YEAR_MS), NEW_YEAR_MS),
        ("0", 0),
        ("0001-01-01", 0),
    ],
)
def test_moments(text: str, at_ms: int) -> None:
    assert parse_moment(text, "from") == at_ms


def test_a_day_as_an_end_is_all_of_it() -> None:
    assert parse_moment("2026-01-01", "to", is_end=True) == NEW_YEAR_MS + DAY_MS
    assert parse_moment("2026-01-01T12:00", "to", is_end=True) == NEW_YEAR_MS + DAY_MS // 2


@pytest.mark.parametrize("text", ["", "x", "2026-13-01", "9999-12-31T23:59:59-23:59x", "²"])
def test_what_is_no_moment(text: str) -> None:
    with pytest.raises(RequestError, match="'from' must be"):
        parse_moment(text, "from")


def test_the_last_day_of_all_has_no_end() -> None:
    with pytest.raises(RequestError, match="'to' must be"):
        parse_moment("9999-12-31", "to", is_end=True)


def test_days() -> None:
    assert parse_day("2026-02-28", "from") == datetime.date(2026, 2, 28)
    for text in ("2026-02-29", "20260228", "2026-02-28T00:00"):
        with pytest.raises(RequestError, match="'from' must be a day"):
            parse_day(text, "from")


def test_a_cursor_comes_back_as_it_was() -> None:
    cursor = Cursor(NEW_YEAR_MS, ID)
    assert parse_cursor(str(cursor)) == cursor
    assert parse_query({"after": str(cursor), "limit": "7"}).after == cursor


@pytest.mark.parametrize(
    "query",
    [
        {"limit": "-1"},
        {"limit": "1e3"},
        {"after": f"x.{ID}"},
        {"after": "1"},
        {"id": "01_"},
        {"outcome": "Finished"},
        {"model": "\ud800"},
        {"dialect": "a\0"},
    ],
)
def test_what_is_refused_is_named(query: dict[str, str]) -> None:
    with pytest.raises(RequestError) as caught:
        parse_query(query)
    assert caught.value.problem.param == next(iter(query))
