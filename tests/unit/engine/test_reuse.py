"""What slots keep for later prompts: moved pieces, prompts in RAM, checkpoints."""

from hypothesis import given
from hypothesis import strategies as st

from services.engine.cache_reuse import Move, find_moves, moved
from services.engine.checkpoints import Checkpoint, added, newest, places
from services.engine.prompt_cache import MIB, PromptCache
from tests.unit.engine.recording_memory import Bench, CopiedCells, need

# -- moved pieces ----------------------------------------------------------------------------------


def test_a_piece_further_back_is_moved_to_the_front() -> None:
    cached, prompt = [1, 2, 9, 9, 3, 4, 5, 8, 6, 7], [1, 2, 3, 4, 5, 6, 7, 0]
    moves = find_moves(cached, prompt, 2, 2)
    assert moves == [Move(source=4, target=2, n=3), Move(source=8, target=5, n=2)]
    assert moved(cached, moves, 2) == [1, 2, 3, 4, 5, 6, 7]


def test_pieces_that_are_too_short_are_not() -> None:
    assert find_moves([1, 2, 9, 3, 4, 8], [1, 2, 3, 4, 5], 2, 3) == []
    assert find_moves([1, 2, 9, 3, 4], [1, 2, 3, 4], 2, 3) == []


TOKENS = st.lists(st.integers(0, 3), max_size=40)


@given(cached=TOKENS, prompt=TOKENS, n_min=st.integers(1, 6))
def test_moves_are_those_of_the_plain_search(
    cached: list[int], prompt: list[int], n_min: int
) -> None:
    n_past = 0
    while n_past < min(len(cached), len(prompt)) and cached[n_past] == prompt[n_past]:
        n_past += 1
    moves = find_moves(cached, prompt, n_past, n_min)
    assert moves == list(plain_search(cached, prompt, n_past, n_min))
    kept = moved(cached, moves, n_past)
    assert kept == prompt[: len(kept)]


def plain_search(cached: list[int], prompt: list[int], n_past: int, n_min: int):
    """Position by position, as llama-server does it."""
    source = target = n_past
    while source < len(cached) and target < len(prompt):
        n = 0
        while (
            source + n < len(cached)
            and target + n < len(prompt)
            and cached[source + n] == prompt[target + n]
        ):
            n += 1
        if n >= n_min:
            yield Move(source=source, target=target, n=n)
            source, target = source + n, target + n
        else:
            source += 1


def test_a_slot_reuses_moved_pieces() -> None:
    bench = Bench(n_slots=1)
    bench.admit("a", need(range(100)))
    bench.seat()
    bench.steps(1)
    bench.scheduler.cancel("a")
    prompt = (*range(20), *range(50, 90), 7777)
    bench.admit("b", need(prompt), n_cache_reuse=30)
    (seat,) = bench.seat()["b"]
    bench.check()
    assert (seat.n_cached, seat.chunks) == (60, (1,))
    assert ("move", 0, 50, 20, 40) in bench.memory.calls


# -- prompts in RAM --------------------------------------------------------------------------------


def state(n_bytes: int) -> CopiedCells:
    return CopiedCells(dict.fromkeys(range(n_bytes // 1000), 0))


def put(cache: PromptCache, tokens: list[int], n_bytes: int = 1000) -> bool:
    return cache.put(tokens, (), n_bytes, lambda: state(n_bytes))


def test_a_prompt_comes_back_when_it_is_a_better_beginning() -> None:
    cache = PromptCache(1, 100)
    assert put(cache, [1, 2, 3, 4])
    assert put(cache, [1, 9, 9, 9])
    assert cache.take_better([], [5, 5]) is None
    found = cache.take_better([1, 7, 7], [1, 2, 3, 5])
    assert found is not None
    assert found.tokens == [1, 2, 3, 4]
    assert len(cache) == 1, "it is in a slot now"


def test_it_must_be_better_in_both_ways_and_used_to_a_quarter() -> None:
    cache = PromptCache(1, 100)
    put(cache, [1, 2, *range(100, 110)])
    assert cache.take_better([], [1, 2, 3]) is None, "less than a quarter of it is used"
    put(cache, [1, 2, 3, 4, 5, 6])
    assert cache.take_better([1, 2], [1, 2, 3, 9]) is None, "the slot's own is used up wholly"
    assert cache.take_better([1, 2, 8, 8, 8], [1, 2, 3, 9]) is not None


def test_nothing_is_kept_twice_and_the_longer_one_stays() -> None:
    cache = PromptCache(1, 100)
    put(cache, [1, 2, 3])
    assert not put(cache, [1, 2])
    assert not put(cache, [])
    assert put(cache, [1, 2, 3, 4])
    assert len(cache) == 1


def test_the_oldest_go_when_there_is_no_room() -> None:
    cache = PromptCache(1, 100)
    third = MIB // 3 // 1000 * 1000
    for first in range(4):
        assert put(cache, [first], third)
    assert cache.n_bytes <= MIB
    assert len(cache) == 3
    assert cache.take_better([], [0]) is None
    assert cache.take_better([], [3]) is not None
    assert not put(cache, [9], 2 * MIB), "never anything for what cannot fit"
    assert len(cache) == 2


def test_without_a_limit_of_bytes_the_tokens_are_limited() -> None:
    cache = PromptCache(-1, 10)
    for first in range(4):
        put(cache, [first] * 4, 100 * MIB)
    assert len(cache) == 2


def test_what_cannot_be_saved_is_not_kept() -> None:
    cache = PromptCache(1, 100)
    assert not cache.put([1], (), 10, lambda: None)
    assert len(cache) == 0


def turn(bench: Bench, name: str, prompt: range | tuple[int, ...], **more: object) -> int:
    """Run a generation to its first tokens and end it; how much of its prompt was cached."""
    bench.admit(name, need(prompt), **more)
    (seat,) = bench.seat()[name]
    while any(slot.next_chunk for slot in bench.scheduler.slots):
        bench.step()
        bench.check()
    bench.step()
    bench.scheduler.cancel(name)
    bench.check()
    return seat.n_cached


def test_two_conversations_on_one_slot() -> None:
    bench = Bench(n_slots=1)
    assert turn(bench, "a1", range(100)) == 0
    assert turn(bench, "b1", range(1000, 1100)) == 0
    assert turn(bench, "a2", (*range(100), 7, 5)) == 101
    assert turn(bench, "b2", (*range(1000, 1100), 7, 5)) == 101


def test_without_ram_they_begin_anew() -> None:
    bench = Bench(n_slots=1, caching={"ram_mib": 0})
    turn(bench, "a1", range(100))
    turn(bench, "b1", range(1000, 1100))
    assert turn(bench, "a2", (*range(100), 7, 5)) == 0


def test_idle_slots_of_a_shared_cache_are_saved_and_emptied() -> None:
    bench = Bench(caching={"is_unified": True})
    turn(bench, "a", range(100))
    turn(bench, "b", range(1000, 1100))
    cached = [len(slot.cached) for slot in bench.scheduler.slots]
    assert sorted(cached) == [0, 0, 0, 101]
    assert turn(bench, "a again", range(100)) == 99


def test_idle_slots_with_a_cache_of_their_own_keep_it() -> None:
    bench = Bench()
    turn(bench, "a", range(100))
    turn(bench, "b", range(1000, 1100))
    assert [len(slot.cached) for slot in bench.scheduler.slots] == [0, 0, 101, 101]


def test_idle_slots_are_left_alone_when_told_so() -> None:
    bench = Bench(caching={"is_unified": True, "saves_idle": False})
    turn(bench, "a", range(100))
    turn(bench, "b", range(1000, 1100))
    assert not any(call[0] == "save" for call in bench.memory.calls)


def test_an_erased_slot_that_is_asked_for_does_not_come_back() -> None:
    bench = Bench()
    turn(bench, "a", range(100), id_slot=1)
    turn(bench, "b", range(1000, 1100), id_slot=2)
    bench.scheduler.erase(1)
    assert turn(bench, "a again", range(100), id_slot=1) == 0


def test_a_purged_slot_is_in_ram() -> None:
    bench = Bench(n_slots=2, caching={"saves_idle": False})
    turn(bench, "a", range(100))
    assert bench.scheduler.purge_idle()
    assert turn(bench, "a again", range(100)) == 99


# -- checkpoints -----------------------------------------------------------------------------------


def checkpoint(n_tokens: int, generation_id: str = "g") -> Checkpoint:
    return Checkpoint(n_tokens=n_tokens, generation_id=generation_id, state=state(0))


def test_places_of_checkpoints() -> None:
    assert places(1000, 0, 512) == (484, 996)
    assert places(1000, 600, 512) == (996,)
    assert places(4, 0, 512) == ()


def test_the_newest_that_fits() -> None:
    found = newest([checkpoint(10), checkpoint(50), checkpoint(90)], 60)
    assert found is not None
    assert found.n_tokens == 50
    assert newest([checkpoint(10)], 9) is None


def test_close_ones_go_first_and_then_the_oldest() -> None:
    old = [checkpoint(n, "old") for n in (100, 150, 5000)]
    kept = added(old, checkpoint(6000), n_most=4, min_step=1000)
    assert [c.n_tokens for c in kept] == [100, 5000, 6000]
    kept = added(kept, checkpoint(7000), n_most=3, min_step=0)
    assert [c.n_tokens for c in kept] == [5000, 6000, 7000]
    again = added(kept, checkpoint(7000, "newer"), n_most=9, min_step=0)
    assert [(c.n_tokens, c.generation_id) for c in again][1:] == [(6000, "g"), (7000, "newer")]
    assert [c.n_tokens for c in added([], checkpoint(1), n_most=1, min_step=9)] == [1]


def test_a_follow_up_turn_goes_back_to_a_checkpoint() -> None:
    bench = Bench(n_slots=1, can_cut=False)
    turn(bench, "a", range(1000))
    assert turn(bench, "edited", (*range(998), 5000, 5001)) == 996
    assert turn(bench, "other end", (*range(700), 6000)) == 484
    assert turn(bench, "nothing in common", range(3000, 3100)) == 0


def test_checkpoints_come_back_from_ram_with_their_prompt() -> None:
    bench = Bench(n_slots=1, can_cut=False)
    turn(bench, "a", range(1000))
    turn(bench, "b", range(3000, 3100))
    assert turn(bench, "a edited", (*range(998), 5000)) == 996
