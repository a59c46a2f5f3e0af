"""What digests cover, and how links follow one another."""

import itertools

import pytest

from services.streams.archive import digests
from services.streams.archive.digests import CHAIN_START, GENERATION, Link, next_link


def chain(*days: str) -> list[Link]:
    links: list[Link] = []
    for number, day in enumerate(days):
        last = links[-1] if links else None
        links.append(next_link(last, day, GENERATION, f"g{number}", f"d{number}"))
    return links


def test_links_are_numbered_by_day_and_continue_the_day_before() -> None:
    links = chain("2026-11-29", "2026-11-29", "2026-11-30")
    assert [(link.day, link.position) for link in links] == [
        ("2026-11-29", 0),
        ("2026-11-29", 1),
        ("2026-11-30", 0),
    ]
    expected = digests.chain_digest(links[1].chain_digest, GENERATION, "g2", "d2")
    assert links[2].chain_digest == expected
    assert links[0].chain_digest == digests.chain_digest(CHAIN_START, GENERATION, "g0", "d0")


def test_a_clock_that_lags_behind_reopens_no_day() -> None:
    links = chain("2026-11-30", "2026-11-29")
    assert (links[1].day, links[1].position) == ("2026-11-30", 1)


def test_a_whole_chain_follows() -> None:
    links = chain("2026-11-29", "2026-11-29", "2026-11-30", "2026-12-02")
    assert digests.is_next(None, links[0])
    assert all(digests.is_next(*pair) for pair in itertools.pairwise(links))


@pytest.mark.parametrize("field", Link._fields)
def test_any_change_of_a_link_is_found(field: str) -> None:
    links = chain("2026-11-29", "2026-11-29")
    value = getattr(links[1], field)
    changed = links[1]._replace(**{field: value + 1 if isinstance(value, int) else "x" + value})
    assert not digests.is_next(links[0], changed)


def test_a_missing_link_and_another_order_are_found() -> None:
    links = chain("2026-11-29", "2026-11-29", "2026-11-29")
    assert not digests.is_next(links[0], links[2])
    assert not digests.is_next(links[1], links[0])
    assert not digests.is_next(None, links[1])


def test_what_a_row_gets_later_is_not_covered() -> None:
    row = {"a": 1, "b": None, "archived_at_ms": 1, "erased_at_ms": None, "digest": ""}
    assert digests.row_digest(row) == digests.row_digest(row | {"archived_at_ms": 2})
    assert digests.row_digest(row) == digests.row_digest(row | {"erased_at_ms": 2, "digest": "x"})
    assert digests.row_digest(row) != digests.row_digest(row | {"a": 2})
    assert digests.row_digest(row) != digests.row_digest(row | {"b": 0})


def test_entries_cannot_trade_bytes_or_places() -> None:
    entries = [(1, b"ab"), (2, b"c")]
    found = {
        digests.events_digest(each)
        for each in (
            entries,
            [(1, b"a"), (2, b"bc")],
            [(1, b"ab"), (3, b"c")],
            [(2, b"c"), (1, b"ab")],
            entries[:1],
        )
    }
    assert len(found) == 5


def test_what_databases_cannot_hold_is_written_otherwise() -> None:
    value = {"x": (float("-inf"), 1.5, "a\0b"), 3: None}
    assert digests.plain(value) == {"x": ["-inf", 1.5, "a\N{REPLACEMENT CHARACTER}b"], "3": None}


def test_the_day_is_utc() -> None:
    assert digests.day_of(1_795_910_399_999) == "2026-11-28"
    assert digests.day_of(1_795_910_400_000) == "2026-11-29"


def test_digests_stay_what_they_were() -> None:
    """A change here means that archives written before do not verify any more."""
    assert digests.row_digest({"generation_id": "g", "n": 1, "x": 0.1, "t": "é", "l": [1]}) == (
        "9ce43d1ae359ea248898a5d98994997360e553c68b5ee6e4c9588d2a37ebd9a9"
    )
    assert (
        digests.events_digest([(1, b"ab"), (2, b"c")])
        == "4b7dbaed1df3534b59e152fe96c8adbcb40393d9a82d16f531c482edb69f1036"
    )
    assert (
        digests.chain_digest(CHAIN_START, GENERATION, "g", "d")
        == "82fb16b9f3130466b2f4f64bc217066f3f74a1e84e5256cbef55688262300cae"
    )
