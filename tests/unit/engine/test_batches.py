"""What goes into which batch."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.engine.kernels import SMALL_ROWS, split
from tests.unit.engine.recording_memory import Bench, need


def seated(bench: Bench, **prompts: int) -> dict[str, int]:
    """Admit prompts of so many tokens; different names have nothing in common. Their slots."""
    for name, n_prompt in prompts.items():
        start = 1000 * int.from_bytes(name.encode())
        bench.admit(name, need(range(start, start + n_prompt)), can_reuse=False)
    return {name: seats[0].slot for name, seats in bench.seat().items()}


def test_nothing_to_do() -> None:
    assert Bench().scheduler.plan() is None


def test_a_prompt_and_then_token_by_token() -> None:
    bench = Bench()
    seated(bench, a=10)
    assert bench.steps(3) == [[(3, 10)], [(3, 1)], [(3, 1)]]


def test_positions_follow_one_another() -> None:
    bench = Bench(n_batch=44, n_ubatch=40)
    seated(bench, a=50)
    parts = [batch.parts[0] for _ in range(4) if (batch := bench.step())]
    assert [part.start for part in parts] == [0, 40, 50, 51]
    assert [part.is_sampled for part in parts] == [False, True, True, True]
    assert [part.is_prompt for part in parts] == [True, True, False, False]
    assert parts[2].ids == (7,)


def test_a_slot_that_was_not_fed_decodes_nothing() -> None:
    bench = Bench()
    seated(bench, a=10)
    batch = bench.scheduler.plan()
    assert batch
    bench.scheduler.commit(batch)
    assert bench.scheduler.plan() is None


def test_small_prompts_go_beside_decode_rows() -> None:
    bench = Bench()
    seated(bench, a=10)
    bench.steps(1)
    seated(bench, b=62)
    assert bench.steps(2) == [[(2, 62), (3, 1)], [(2, 1), (3, 1)]]


def test_large_chunks_go_alone_and_alternate_with_decode_rows() -> None:
    bench = Bench(n_batch=104, n_ubatch=100, caching={"prefill_budget": 100})
    seated(bench, a=10)
    bench.steps(1)
    seated(bench, b=250)
    rows = [[(2, 100)], [(3, 1)], [(2, 75)], [(3, 1)], [(2, 75)], [(2, 1), (3, 1)]]
    assert bench.steps(6) == rows


def test_long_prompts_go_in_pieces_while_others_generate() -> None:
    bench = Bench()
    seated(bench, a=10)
    bench.steps(1)
    seated(bench, b=300)
    assert bench.steps(4) == [[(2, 64)], [(3, 1)], [(2, 64)], [(3, 1)]]
    bench.scheduler.cancel("a")
    assert bench.steps(2) == [[(2, 172)], [(2, 1)]], "and the rest at once when nobody does"


def test_no_piece_leaves_a_small_rest() -> None:
    bench = Bench()
    seated(bench, a=10)
    bench.steps(1)
    seated(bench, b=130)
    assert bench.steps(3) == [[(2, 64)], [(3, 1)], [(2, 66)]]


def test_half_of_the_time_is_for_those_who_generate() -> None:
    bench = Bench(n_ctx=9999, n_ctx_slot=9999)
    seated(bench, a=10)
    bench.steps(1)
    seated(bench, b=2000)
    kinds = ""
    for _ in range(30):
        batch = bench.scheduler.plan()
        assert batch is not None
        is_prompt = batch.parts[0].is_prompt
        bench.elapsed_us = 500 if is_prompt else 100
        bench.step()
        kinds += "p" if is_prompt else "d"
    assert kinds == "pddddd" * 5


def test_short_prompts_run_up_no_debt_for_long_ones() -> None:
    bench = Bench(n_ctx=9999, n_ctx_slot=9999)
    seated(bench, a=10)
    bench.steps(1)
    bench.elapsed_us = 1000
    seated(bench, b=100)
    bench.steps(1)
    seated(bench, c=1000)
    assert bench.steps(2) == [[(2, 1), (3, 1)], [(1, 64)]]


def test_a_prompt_that_nobody_waited_for_runs_up_no_debt() -> None:
    bench = Bench(n_ctx=9999, n_ctx_slot=9999)
    bench.elapsed_us = 1_000_000
    seated(bench, a=2000)
    bench.steps(4)
    seated(bench, b=1000)
    assert bench.steps(1) == [[(2, 64)]]


@pytest.mark.parametrize(
    ("budget", "rows"),
    [
        (20, [[(2, 20), (3, 1)], [(2, 20), (3, 1)]]),
        (70, [[(2, 70)], [(3, 1)], [(2, 70)], [(3, 1)]]),
    ],
)
def test_a_fixed_budget_is_kept(budget: int, rows: list[list[tuple[int, int]]]) -> None:
    bench = Bench(caching={"prefill_budget": budget})
    seated(bench, a=10)
    bench.steps(1)
    seated(bench, b=400)
    assert bench.steps(len(rows)) == rows


def test_several_long_prompts_take_turns() -> None:
    bench = Bench()
    seated(bench, a=10)
    bench.steps(1)
    seated(bench, b=250, c=250)
    assert bench.steps(4) == [[(2, 64)], [(3, 1)], [(1, 64)], [(3, 1)]]


def test_short_prompts_go_at_once_though_others_generate() -> None:
    bench = Bench()
    seated(bench, a=10)
    bench.steps(1)
    seated(bench, b=128)
    assert bench.steps(2) == [[(2, 128)], [(2, 1), (3, 1)]]


def test_without_flash_attention_pieces_go_beside_and_follow_their_cost() -> None:
    bench = Bench(n_ctx=9999, n_ctx_slot=9999, n_batch=4096, n_ubatch=4000, is_flash=False)
    seated(bench, a=10)
    bench.elapsed_us = 1000
    bench.steps(9)
    seated(bench, b=2000)
    sizes = [parts[0][1] for parts in bench.steps(20)]
    assert sizes == sorted(sizes)
    assert (sizes[0], sizes[-1]) == (4, 62), "as many as fit beside the decode row"
    bench.elapsed_us = 2500
    sizes = [parts[0][1] for parts in bench.steps(10)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] < 30


def test_the_cost_of_a_step_alone_is_looked_at_now_and_then() -> None:
    bench = Bench(n_ctx=9999, n_ctx_slot=9999, is_flash=False)
    seated(bench, a=10)
    bench.elapsed_us = 1000
    bench.steps(2)
    seated(bench, b=4000)
    n_parts = [len(parts) for parts in bench.steps(34)]
    assert n_parts == [2] * 32 + [1, 2]


@pytest.mark.parametrize(
    ("n_tokens", "chunk", "expected"),
    [
        (0, 512, ()),
        (512, 512, (512,)),
        (700, 512, (512, 188)),
        (1025, 512, (512, 257, 256)),
        (575, 512, (288, 287)),
        (576, 512, (512, 64)),
        (70, 66, (66, 4)),
        (9, 4, (4, 4, 1)),
    ],
)
def test_no_chunk_leaves_a_small_rest(n_tokens: int, chunk: int, expected: tuple[int, ...]) -> None:
    assert split(n_tokens, chunk) == expected


def test_a_small_chunk_that_does_not_fit_beside_decode_rows_goes_alone() -> None:
    bench = Bench()
    seated(bench, a=10)
    bench.steps(1)
    seated(bench, b=63)
    assert bench.steps(2) == [[(2, 63)], [(2, 1), (3, 1)]]


def test_several_prompts_share_a_batch_by_size() -> None:
    bench = Bench()
    seated(bench, small=40, large=100, larger=120, smaller=20)
    rows = [[(0, 20), (3, 40)], [(1, 120), (2, 100)], [(0, 1), (1, 1), (2, 1), (3, 1)]]
    assert bench.steps(3) == rows


def test_parts_stand_in_the_order_of_their_slots() -> None:
    bench = Bench()
    slots = seated(bench, a=12, b=12, c=12, d=12)
    assert list(slots.values()) != sorted(slots.values())
    (batch,) = bench.steps(1)
    assert batch == [(0, 12), (1, 12), (2, 12), (3, 12)], (
        "or else each goes through a graph of its own"
    )


def test_a_long_prompt_does_not_starve_a_later_one() -> None:
    bench = Bench(n_batch=104, n_ubatch=100)
    seated(bench, long=1000)
    bench.steps(1)
    seated(bench, short=90)
    assert bench.steps(4) == [[(3, 100)], [(2, 90)], [(3, 100)], [(2, 1)]]


def test_no_chunk_waits_longer_than_all_others_take_their_turn() -> None:
    bench = Bench(n_batch=104, n_ubatch=100)
    seated(bench, a=1000, b=1000, c=1000, d=1000)
    served = [parts[0][0] for parts in bench.steps(8)]
    assert sorted(served[:4]) == sorted(served[4:]) == [0, 1, 2, 3]


def test_a_plan_that_failed_is_planned_again() -> None:
    bench = Bench()
    seated(bench, a=10)
    assert bench.scheduler.plan() == bench.scheduler.plan()


def test_idle_caches_are_purged_oldest_first() -> None:
    bench = Bench(n_slots=3)
    for name in "ab":
        seated(bench, **{name: 10})
        bench.steps(2)
        bench.scheduler.cancel(name)
    assert [len(slot.cached) for slot in bench.scheduler.slots] == [0, 11, 11]
    assert bench.scheduler.purge_idle()
    assert [len(slot.cached) for slot in bench.scheduler.slots] == [0, 11, 0]
    assert bench.scheduler.purge_idle()
    assert not bench.scheduler.purge_idle()


def test_the_largest_generation() -> None:
    bench = Bench()
    seated(bench, a=10, b=300, c=20)
    assert bench.scheduler.largest() == "b"


@given(
    prompts=st.lists(st.integers(1, 300), min_size=1, max_size=6),
    n_ubatch=st.integers(1, 130),
    n_batch=st.integers(1, 130),
    n_slots=st.integers(1, 4),
    budget=st.sampled_from([0, 1, 20, 70, 999]),
)
def test_every_batch_keeps_the_rules(
    prompts: list[int], n_ubatch: int, n_batch: int, n_slots: int, budget: int
) -> None:
    bench = Bench(
        n_slots=n_slots, n_batch=n_batch, n_ubatch=n_ubatch, caching={"prefill_budget": budget}
    )
    left = {str(number): n for number, n in enumerate(prompts)}
    seated(bench, **left)
    for _ in range(2 * sum(prompts) + 50):
        bench.seat()
        batch = bench.step()
        if batch is None:
            break
        sizes = [len(part.ids) for part in batch.parts]
        assert batch.n_rows <= max(n_slots, min(n_ubatch, n_batch))
        assert batch.n_rows <= SMALL_ROWS or min(sizes) > SMALL_ROWS
        assert len({part.slot for part in batch.parts}) == len(sizes)
        bench.check()
        _end_after(bench, n_tokens=3)
    assert bench.scheduler.is_idle


def _end_after(bench: Bench, *, n_tokens: int) -> None:
    """Free the slots of generations that have so many tokens."""
    for slot in bench.scheduler.slots:
        if slot.work and len(slot.cached) >= len(slot.work.tokens) + n_tokens:
            bench.scheduler.release(slot.id)


@pytest.mark.parametrize(("n_batch", "n_ubatch", "chunk"), [(2048, 512, 512), (512, 512, 508)])
def test_chunk_sizes(n_batch: int, n_ubatch: int, chunk: int) -> None:
    bench = Bench(n_batch=n_batch, n_ubatch=n_ubatch)
    bench.admit("a", need(range(chunk + 64)))
    assert bench.seat()["a"][0].chunks == (chunk, 64)
