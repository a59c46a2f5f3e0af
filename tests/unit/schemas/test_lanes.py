"""Who goes into which lane, and whose turn it is."""

from collections import Counter

import pytest

from schemas import lanes
from schemas.lanes import BATCH, BUSY, FLOODING, LIGHT, OWN, SHARED

ALL = (*SHARED, OWN)


def shares(waiting: set[int], n_turns: int = 1600) -> Counter[int]:
    """How many tasks each lane gives while all of `waiting` have some."""
    return Counter(lanes.order(turn, waiting)[0] for turn in range(n_turns))


def test_every_lane_has_a_turn_and_interactive_ones_have_most() -> None:
    found = shares(set(ALL))
    assert found == {LIGHT: 800, OWN: 400, BUSY: 200, FLOODING: 100, BATCH: 100}


@pytest.mark.parametrize("lane", [LIGHT, BUSY, FLOODING, OWN])
def test_batch_gets_one_turn_of_sixteen_beside_any_other(lane: int) -> None:
    assert shares({lane, BATCH}) == {lane: 1500, BATCH: 100}


def test_one_alone_has_every_turn() -> None:
    assert all(shares({lane}) == {lane: 1600} for lane in ALL)


def test_all_that_wait_are_named_once() -> None:
    for turn in range(len(lanes.TURNS)):
        assert sorted(lanes.order(turn, ALL)) == sorted(ALL)


def test_a_caller_slows_down_as_it_has_more() -> None:
    lane, seen = LIGHT, list[int]()
    for n in range(40):
        lane = lanes.lane_of(n, lane)
        seen.append(lane)
    assert seen == [LIGHT] * 4 + [BUSY] * 28 + [FLOODING] * 8


def test_it_comes_back_at_half_of_that() -> None:
    assert lanes.lane_of(16, FLOODING) == FLOODING
    assert lanes.lane_of(15, FLOODING) == BUSY
    assert lanes.lane_of(2, BUSY) == BUSY
    assert lanes.lane_of(1, FLOODING) == LIGHT


def test_a_flood_leaves_room_for_others() -> None:
    assert [lanes.limit_of(lane, 100) for lane in SHARED] == [100, 100, 75, 50]
    assert [lanes.limit_of(lane, 1) for lane in SHARED] == [1, 1, 1, 1]
