"""Which prompts go aside while others generate, and how they come back."""

import pytest

from services.engine.scheduler import Batch
from services.engine.side_prompts import SidePrompt
from services.engine.states import State
from tests.unit.engine.recording_memory import Bench, CopiedCells, need

ROOMY = {"n_ctx": 9999, "n_ctx_slot": 9999, "has_side": True}


def chatting(**sizes: object) -> Bench:
    """One slot generates."""
    bench = Bench(**{**ROOMY, **sizes})
    ask(bench, "chat", 10)
    bench.steps(3)
    return bench


def ask(bench: Bench, name: str, n: int, **more: object) -> int:
    """Seat a prompt of `n` tokens; its slot."""
    bench.admit(name, need(range(100, 100 + n), **more))
    return bench.seat()[name][0].slot


def cells(prompt: SidePrompt, n: int) -> CopiedCells:
    return CopiedCells(dict(enumerate(prompt.tokens[:n])))


def begun(bench: Bench) -> SidePrompt:
    prompt = bench.scheduler.side.next()
    assert prompt is not None
    return prompt


def land(bench: Bench, prompt: SidePrompt) -> bool:
    return bench.scheduler.side.land(prompt, cells(prompt, prompt.n_end), {})


def slots(batch: Batch | None) -> list[int]:
    return [part.slot for part in batch.parts] if batch else []


def test_a_long_prompt_goes_aside_and_its_last_token_is_decoded_here() -> None:
    bench = chatting()
    slot = ask(bench, "long", 1000)
    prompt = begun(bench)
    assert (prompt.slot, prompt.n_held, prompt.held, prompt.n_end) == (slot, 0, None, 999)
    assert set(prompt.pieces) <= set(range(64, 129))
    assert bench.steps(3) == [[(3, 1)]] * 3, "the chat goes on alone"
    assert land(bench, prompt)
    bench.check()
    assert bench.steps(2) == [[(slot, 1), (3, 1)]] * 2
    bench.check()
    assert bench.scheduler.slots[slot].cached == [*range(100, 1100), 7]


@pytest.mark.parametrize(
    ("sizes", "n", "more"),
    [
        ({"has_side": False}, 1000, {}),
        ({}, 128, {}),
        ({}, 300, {"emitted": (7, 7), "chunks": (300,)}),
    ],
)
def test_what_stays(sizes: dict[str, object], n: int, more: dict[str, object]) -> None:
    """Without a second context; what is short; what has to be repeated as it was."""
    bench = chatting(**sizes)
    slot = ask(bench, "stays", n, **more)
    assert bench.scheduler.side.next() is None
    seen = [slots(bench.step()) for _ in range(3)]
    assert [slot] in seen


def test_nothing_goes_aside_while_nobody_generates() -> None:
    bench = Bench(**ROOMY)
    ask(bench, "long", 1000)
    assert bench.scheduler.side.next() is None
    assert bench.steps(1) == [[(3, 512)]]


def test_what_the_slot_held_goes_along() -> None:
    bench = Bench(**ROOMY)
    slot = ask(bench, "long", 2000)
    bench.steps(1)
    bench.admit("chat", need((1, 2, 3)))
    bench.seat()
    bench.steps(2)
    prompt = begun(bench)
    n_held = prompt.n_held
    assert prompt.slot == slot
    assert n_held >= 512
    assert prompt.held == cells(prompt, n_held)
    assert land(bench, prompt)
    bench.check()
    assert bench.scheduler.slots[slot].working().n_done == 1999


def test_a_follower_waits_for_its_leader() -> None:
    bench = chatting()
    bench.admit("two", need(range(300), choice=0), need(range(300), choice=1))
    leader, follower = (seat.slot for seat in bench.seat()["two"])
    prompt = begun(bench)
    assert (prompt.slot, bench.scheduler.side.next()) == (leader, None)
    land(bench, prompt)
    bench.step()
    bench.check()
    assert bench.scheduler.slots[follower].is_generating


def test_the_longest_waiting_goes_first() -> None:
    bench = chatting()
    first, second = ask(bench, "a", 300), ask(bench, "b", 200)
    assert [begun(bench).slot, begun(bench).slot] == [first, second]
    assert bench.scheduler.side.next() is None


def test_one_that_waits_for_its_turn_is_decoded_here_when_nobody_generates() -> None:
    bench = chatting()
    aside, waiting = ask(bench, "a", 300), ask(bench, "b", 300)
    assert begun(bench).slot == aside
    assert bench.steps(1) == [[(3, 1)]]
    bench.scheduler.cancel("chat")
    assert bench.steps(1) == [[(waiting, 300)]]


def test_a_cancelled_one_is_wanted_no_more() -> None:
    bench = chatting(n_slots=2)
    slot = ask(bench, "long", 1000)
    prompt = begun(bench)
    assert bench.scheduler.side.is_wanted(prompt)
    bench.scheduler.cancel("long")
    assert not bench.scheduler.side.is_wanted(prompt)
    assert ask(bench, "next", 500) == slot
    assert begun(bench) is not prompt
    assert not bench.scheduler.side.is_wanted(prompt), "another one has the slot"


def test_one_that_cannot_go_aside_is_decoded_here() -> None:
    bench = chatting()
    slot = ask(bench, "long", 1000)
    bench.scheduler.side.give_up(begun(bench))
    assert bench.scheduler.side.next() is None
    assert bench.steps(2) == [[(slot, 64)], [(3, 1)]]


def test_without_room_the_slot_holds_nothing_and_may_try_again() -> None:
    bench = chatting()
    slot = ask(bench, "long", 1000)
    prompt = begun(bench)
    bench.memory.has_room = False
    assert not land(bench, prompt)
    bench.check()
    assert bench.scheduler.side.is_wanted(prompt)
    bench.memory.has_room = True
    assert land(bench, prompt)
    assert bench.scheduler.slots[slot].cached == list(range(100, 1099))


def test_checkpoints_come_back_with_it() -> None:
    bench = chatting(can_cut=False, n_ubatch=256)
    slot = ask(bench, "long", 1000)
    prompt = begun(bench)
    assert prompt.checkpoint_at == (740, 996)
    ends = [sum(prompt.pieces[:n]) for n in range(1, len(prompt.pieces) + 1)]
    assert {740, 996} < set(ends)
    copies: dict[int, State] = {n: cells(prompt, n) for n in prompt.checkpoint_at}
    assert bench.scheduler.side.land(prompt, cells(prompt, prompt.n_end), copies)
    assert [c.n_tokens for c in bench.scheduler.slots[slot].checkpoints] == [740, 996]


def test_no_call_is_larger_than_a_ubatch() -> None:
    bench = chatting(n_ubatch=32)
    ask(bench, "long", 1000)
    assert max(begun(bench).pieces) == 32


def test_landing_costs_nobody_a_turn() -> None:
    """The last token needs no budget, whatever was decoded before."""
    bench = Bench(**ROOMY)
    bench.elapsed_us = 1_000_000
    ask(bench, "chat", 2000)
    bench.steps(9)
    slot = ask(bench, "long", 300)
    land(bench, begun(bench))
    assert bench.steps(1) == [[(slot, 1), (3, 1)]]


def test_moved_cells_are_not_copied_before_they_are_where_they_belong() -> None:
    bench = chatting()
    bench.admit("first", need(range(1000)))
    first = bench.seat()["first"][0].slot
    land(bench, begun(bench))
    bench.steps(2)
    bench.scheduler.cancel("first")
    bench.admit(
        "second", need((*range(200), *range(300, 1000), *range(5000, 5400))), n_cache_reuse=64
    )
    assert bench.seat()["second"][0].slot == first
    assert ("move", first, 300, 200, 700) in bench.memory.calls
    assert bench.scheduler.side.next() is None
    assert bench.steps(1) == [[(3, 1)]]
    assert begun(bench).n_held == 900


def test_what_is_left_counts_and_not_the_whole_prompt() -> None:
    bench = Bench(**ROOMY)
    slot = ask(bench, "long", 1100)
    bench.steps(2)
    ask(bench, "chat", 10)
    assert bench.scheduler.side.next() is None
    bench.steps(2)
    assert bench.scheduler.slots[slot].is_generating


def test_a_long_answer_is_continued_aside() -> None:
    bench = chatting()
    emitted = tuple(range(2000, 2600))
    slot = ask(bench, "again", 100, emitted=emitted, chunks=(100,))
    prompt = begun(bench)
    assert prompt.n_end == 100 + 600 - 1 - 1
    land(bench, prompt)
    assert bench.steps(2) == [[(slot, 1), (3, 1)]] * 2
    bench.check()
    assert bench.scheduler.slots[slot].cached == [*range(100, 200), *emitted]


def test_what_has_no_cells_here_is_not_the_largest() -> None:
    bench = chatting()
    ask(bench, "long", 5000)
    begun(bench)
    assert bench.scheduler.largest() == "chat"
