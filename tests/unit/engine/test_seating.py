"""Which slot a generation gets, what it reuses, and in which order generations are seated."""

import pytest

from services.engine.common_prefix import common_prefix
from services.engine.slots import Slot, choose_slot
from tests.unit.engine.recording_memory import Bench, need


def finish(bench: Bench, name: str) -> None:
    """Run until the prompt is decoded and one more token, then free the slots."""
    while any(slot.next_chunk for slot in bench.scheduler.slots):
        bench.step()
    bench.step()
    bench.scheduler.cancel(name)


def run(bench: Bench, name: str, prompt: range) -> None:
    bench.admit(name, need(prompt))
    bench.seat()
    finish(bench, name)


@pytest.mark.parametrize(
    ("a", "b", "n"),
    [
        ([], [1], 0),
        ([1, 2], [1, 2, 3], 2),
        ([1, 2, 4], [1, 2, 3], 2),
        ([5], [1], 0),
        ([1] * 9, [1] * 9, 9),
    ],
)
def test_common_prefix(a: list[int], b: list[int], n: int) -> None:
    assert common_prefix(a, b) == n
    assert common_prefix(b, a) == n


def test_slot_with_most_of_the_prompt_is_chosen() -> None:
    slots = [Slot(id=0, cached=[1, 2, 3]), Slot(id=1, cached=[1, 2, 3, 4]), Slot(id=2)]
    chosen = choose_slot(slots, [1, 2, 3, 4, 5])
    assert chosen == (slots[1], True)


def test_too_little_in_common_is_nothing() -> None:
    slots = [Slot(id=0, cached=[1, 9], last_used=5), Slot(id=1, last_used=3)]
    chosen = choose_slot(slots, list(range(1, 11)))
    assert chosen == (slots[1], False), "1 of 10 is not more than a tenth"
    assert choose_slot(slots, list(range(1, 10))) == (slots[0], True)
    assert choose_slot(slots, list(range(1, 10)), similarity=0) == (slots[1], False)


def test_unused_slots_are_taken_from_the_last_one_on() -> None:
    bench = Bench()
    for name in "abc":
        bench.admit(name, need(range(5)))
    seats = bench.seat()
    assert [seats[name][0].slot for name in "abc"] == [3, 2, 1]


def test_the_prompt_cache_is_reused_but_for_one_token() -> None:
    bench = Bench()
    run(bench, "a", range(100))
    bench.admit("again", need(range(100)))
    (seat,) = bench.seat()["again"]
    assert (seat.slot, seat.n_cached, seat.chunks) == (3, 99, (1,))
    assert ("keep", 3, 99) in bench.memory.calls


def test_generated_tokens_are_reused_too() -> None:
    bench = Bench()
    run(bench, "a", range(100))
    bench.admit("on", need((*range(100), 7, 8, 9)))
    (seat,) = bench.seat()["on"]
    assert (seat.n_cached, seat.chunks) == (101, (2,))


def test_no_cache_when_not_wanted() -> None:
    bench = Bench()
    run(bench, "a", range(100))
    bench.admit("again", need(range(100)), can_reuse=False)
    (seat,) = bench.seat()["again"]
    assert (seat.slot, seat.n_cached, seat.chunks) == (3, 0, (100,))


def test_a_cache_that_cannot_be_cut_is_dropped() -> None:
    bench = Bench(can_cut=False, caching={"n_checkpoints": 0})
    run(bench, "a", range(100))
    bench.admit("again", need(range(100)))
    (seat,) = bench.seat()["again"]
    assert (seat.slot, seat.n_cached, seat.chunks) == (3, 0, (100,))


def test_chunks_are_fixed_at_the_start() -> None:
    bench = Bench(n_batch=70, n_ubatch=512)
    bench.admit("a", need(range(150)))
    assert bench.seat()["a"][0].chunks == (66, 66, 18)


def test_first_come_first_served() -> None:
    bench = Bench(n_slots=1)
    for name in "abc":
        bench.admit(name, need(range(5)))
    assert list(bench.seat()) == ["a"]
    finish(bench, "a")
    assert list(bench.seat()) == ["b"]


def test_nobody_overtakes_one_that_waits_for_several_slots() -> None:
    bench = Bench(n_slots=2)
    bench.admit("a", need(range(5)))
    bench.seat()
    bench.admit("two", need(range(5)), need(range(5), 1))
    bench.admit("b", need(range(5)))
    assert bench.seat() == {}
    finish(bench, "a")
    assert list(bench.seat()) == ["two"]


def test_a_certain_slot_is_waited_for_and_kept() -> None:
    bench = Bench(n_slots=2)
    bench.admit("a", need(range(5)), id_slot=0)
    assert bench.seat()["a"][0].slot == 0
    bench.admit("wants 0", need(range(5)), id_slot=0)
    bench.admit("any", need(range(5)))
    bench.admit("also any", need(range(5)))
    assert {name: seats[0].slot for name, seats in bench.seat().items()} == {"any": 1}
    finish(bench, "a")
    assert {name: seats[0].slot for name, seats in bench.seat().items()} == {"wants 0": 0}


def test_a_slot_that_does_not_exist_means_any() -> None:
    bench = Bench()
    bench.admit("a", need(range(5)), id_slot=9)
    assert bench.seat()["a"][0].slot == 3


def test_choices_of_one_prompt_follow_a_leader() -> None:
    bench = Bench()
    bench.admit("g", need(range(30)), need(range(30), 1), need(range(30, 50), 2))
    seats = bench.seat()["g"]
    assert [seat.slot for seat in seats] == [3, 0, 2]
    assert seats[1].chunks == seats[0].chunks == (30,)
    assert bench.steps(1) == [[(2, 20), (3, 30)]]
    assert ("copy", 3, 0) in bench.memory.calls
    assert bench.steps(1) == [[(0, 1), (2, 1), (3, 1)]], "all three generate"
    bench.scheduler.cancel("g")
    cached = [len(slot.cached) for slot in bench.scheduler.slots]
    assert cached == [0, 0, 21, 31], "a follower's copy is not kept"


def test_a_continued_choice_repeats_its_first_attempt() -> None:
    bench = Bench(n_batch=44, n_ubatch=40)
    run(bench, "other", range(200))
    emitted = tuple(range(1000, 1071))
    bench.admit("g", need(range(150), emitted=emitted, n_cached_first=90, chunks=(40, 20)))
    (seat,) = bench.seat()["g"]
    assert (seat.n_cached, seat.chunks) == (0, (40, 40, 10, 40, 20))
    sizes = [sum(n for _, n in parts) for parts in bench.steps(9)]
    assert sizes == [40, 40, 10, 40, 20, 32, 32, 6, 1]
    assert bench.scheduler.slots[seat.slot].cached == [*range(150), *emitted]


@pytest.mark.parametrize(
    ("n_emitted", "chunks"), [(101, [400, 32, 32, 32, 4]), (701, [400, 512, 188])]
)
def test_what_cannot_be_bit_equal_is_replayed_in_large_chunks(
    n_emitted: int, chunks: list[int]
) -> None:
    bench = Bench()
    bench.admit("g", need(range(400), emitted=tuple(range(n_emitted)), chunks=(400,)))
    (seat,) = bench.seat()["g"]
    assert list(bench.scheduler.slots[seat.slot].working().chunks) == chunks


def test_float_weights_are_replayed_one_by_one_where_that_makes_a_difference() -> None:
    bench = Bench(has_float_weights=True)
    bench.admit("short", need(range(40), emitted=(5, 6, 7)))
    bench.admit("long", need(range(600), emitted=(5, 6, 7)))
    seats = bench.seat()
    work = [bench.scheduler.slots[seats[name][0].slot].working() for name in ("short", "long")]
    assert [list(w.chunks) for w in work] == [[40, 1, 1], [512, 88, 2]]


def test_chunks_that_do_not_fit_this_engine_are_planned_anew() -> None:
    bench = Bench(n_batch=44, n_ubatch=40)
    bench.admit("g", need(range(100), emitted=(5,), chunks=(100,)))
    assert bench.seat()["g"][0].chunks == (40, 40, 20)


def test_cancel_in_the_queue_and_in_a_slot() -> None:
    bench = Bench(n_slots=1)
    bench.admit("a", need(range(5)))
    bench.admit("b", need(range(5)))
    bench.seat()
    assert bench.scheduler.cancel("b") == ()
    assert bench.scheduler.cancel("a") == (0,)
    assert bench.scheduler.is_idle
    assert bench.seat() == {}
