"""Which tokens a full slot forgets, and how that is repeated."""

import pytest

from services.engine.context_shift import Shift, ShiftPlan, is_full, plan_of, shifted
from services.engine.replay import Logged, plan_replay
from tests.unit.engine.recording_memory import Bench, need

SHIFTING = {"is_shifting": True}


@pytest.mark.parametrize(
    ("plan", "n_cells", "n_ctx", "expected"),
    [
        (ShiftPlan(n_keep=0), 255, 256, Shift(n_keep=0, n_discard=127)),
        (ShiftPlan(n_keep=1), 255, 256, Shift(n_keep=1, n_discard=127)),
        (ShiftPlan(n_keep=100), 255, 256, Shift(n_keep=100, n_discard=77)),
        (ShiftPlan(n_keep=1000), 255, 256, Shift(n_keep=252, n_discard=1)),
        (ShiftPlan(n_keep=10, n_discard=5), 255, 256, Shift(n_keep=10, n_discard=5)),
        (ShiftPlan(n_keep=10, n_discard=9999), 255, 256, Shift(n_keep=10, n_discard=244)),
    ],
)
def test_amounts(plan: ShiftPlan, n_cells: int, n_ctx: int, expected: Shift) -> None:
    assert plan.shift(n_cells, n_ctx) == expected


@pytest.mark.parametrize(
    ("n_keep", "has_bos", "expected"), [(0, False, 0), (0, True, 1), (5, True, 6), (-1, True, 41)]
)
def test_what_is_kept(n_keep: int, has_bos: bool, expected: int) -> None:
    assert plan_of(n_keep, 7, 40, has_bos=has_bos) == ShiftPlan(n_keep=expected, n_discard=7)


def test_full_means_no_room_for_two() -> None:
    assert [is_full(n, 100) for n in (98, 99, 100)] == [False, True, True]


def test_what_is_left_after_shifts() -> None:
    shifts = (Shift(at=6, n_keep=2, n_discard=3), Shift(at=8, n_keep=0, n_discard=1))
    assert shifted(range(9), shifts) == [1, 5, 6, 7, 8]


def run_until_shifted(bench: Bench) -> list[tuple[int, Shift]]:
    shifts: list[tuple[int, Shift]] = []
    for _ in range(200):
        shifts += [(slot.id, shift) for slot, shift in bench.scheduler.shift()]
        bench.step()
        bench.check()
    return shifts


def test_a_full_slot_forgets_and_goes_on() -> None:
    bench = Bench(n_ctx=100, n_ctx_slot=100, has_bos=True, caching=SHIFTING)
    bench.admit("a", need(range(40)), n_keep=9)
    assert bench.seat()["a"][0].can_shift
    shifts = run_until_shifted(bench)
    assert set(shifts) == {(3, Shift(n_keep=10, n_discard=44))}
    assert len(shifts) == 4
    cached = bench.scheduler.slots[3].cached
    assert cached[:10] == list(range(10))
    assert set(cached[10:]) == {7}


@pytest.mark.parametrize("caching", [{}, SHIFTING])
def test_nothing_is_forgotten_unless_it_may(caching: dict[str, bool]) -> None:
    bench = Bench(n_ctx=999, n_ctx_slot=100, can_cut=not caching, caching=caching)
    bench.admit("a", need(range(40)))
    assert not bench.seat()["a"][0].can_shift
    assert run_until_shifted(bench) == []


def test_choices_that_share_a_prompt_do_not_shift() -> None:
    bench = Bench(n_ctx=999, n_ctx_slot=100, caching=SHIFTING)
    bench.admit("g", need(range(9)), need(range(9), 1), need(range(20), 2))
    assert [seat.can_shift for seat in bench.seat()["g"]] == [False, False, True]
    bench.admit("rest of two", need(range(9), 1), n_cmpl=2)
    assert not bench.seat()["rest of two"][0].can_shift


# -- continuing ----------------------------------------------------------------------------------


def logged(n_prompt: int, n_emitted: int, *shifts: Shift, is_exact: bool = False) -> Logged:
    return Logged(
        prompt=tuple(range(n_prompt)),
        prompt_chunks=(n_prompt,),
        emitted=tuple(range(1000, 1000 + n_emitted)),
        shifts=shifts,
        is_exact=is_exact,
    )


SHIFT = Shift(at=99, n_keep=10, n_discard=44)


def test_a_small_slot_repeats_all_of_it_shifts_in_between() -> None:
    replay = plan_replay(logged(40, 80, SHIFT), n_ctx=100, chunk=512, has_float_weights=False)
    assert replay.chunks == (40, 32, 27, 20)
    assert (replay.shifts, replay.is_repeated) == ((SHIFT,), True)
    assert list(replay.tokens) == [*range(40), *range(1000, 1079)]


def test_a_large_slot_decodes_what_is_left_in_the_window() -> None:
    replay = plan_replay(logged(40, 80, SHIFT), n_ctx=1000, chunk=50, has_float_weights=False)
    assert list(replay.tokens) == [*range(10), *range(1014, 1079)]
    assert (replay.chunks, replay.shifts, replay.is_repeated) == ((50, 25), (), False)


def test_exact_replay_repeats_it_token_by_token_in_any_slot() -> None:
    one = plan_replay(
        logged(40, 80, SHIFT, is_exact=True), n_ctx=1000, chunk=512, has_float_weights=False
    )
    assert one.chunks == (40,) + (1,) * 79
    assert one.shifts == (SHIFT,)


def test_a_continued_choice_shifts_where_it_did() -> None:
    bench = Bench(n_ctx=999, n_ctx_slot=100, caching=SHIFTING)
    emitted = tuple(range(1000, 1080))
    bench.admit("g", need(range(40), emitted=emitted, shifts=(SHIFT,), chunks=(40,)), n_keep=10)
    (seat,) = bench.seat()["g"]
    while bench.scheduler.slots[seat.slot].next_chunk:
        bench.step()
        bench.check()
    assert bench.scheduler.slots[seat.slot].cached == [*range(10), *range(1014, 1079)]


def test_a_shift_right_after_the_last_logged_token_is_repeated_too() -> None:
    bench = Bench(n_ctx=999, n_ctx_slot=100, caching=SHIFTING)
    emitted = tuple(range(1000, 1060))
    bench.admit("g", need(range(40), emitted=emitted, shifts=(SHIFT,), chunks=(40,)), n_keep=10)
    (seat,) = bench.seat()["g"]
    assert bench.steps(4) == [[(3, 40)], [(3, 32)], [(3, 27)], [(3, 1)]]
    bench.check()
    assert bench.scheduler.slots[seat.slot].cached == [*range(10), *range(1014, 1060)]
