"""The thread that decodes long prompts aside, over contexts that only note what is done to them."""

import os
import select
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pytest

from services.engine.batches import DECODED
from services.engine.side_prefill import (
    MAX_ACTIVE,
    NotPrefilled,
    Prefilled,
    Progressed,
    SidePrefill,
    SideResult,
)
from services.engine.side_prompts import SidePrompt
from services.engine.slots import Work
from tests.unit.engine.noted_context import WAIT_S, NotedContext
from tests.unit.engine.recording_memory import CopiedCells


@dataclass
class Desk:
    """A SidePrefill and what it asked for. contexts: that it will get, in order."""

    contexts: list[NotedContext | None] = field(default_factory=list[NotedContext | None])
    shared: list[bool] = field(default_factory=list[bool])

    def __post_init__(self) -> None:
        self.side = SidePrefill(
            lambda _n: self.contexts.pop(0),
            n_threads=1,
            n_threads_alone=4,
            on_shared=self.shared.append,
        )

    def until_over(self, n: int = 1) -> list[SideResult]:
        """All results until `n` prompts are over."""
        found: list[SideResult] = []
        while sum(not isinstance(result, Progressed) for result in found) < n:
            assert select.select([self.side], [], [], WAIT_S)[0], "it wakes whoever waits"
            found += self.side.results()
        return found


@pytest.fixture
def desk() -> Iterator[Desk]:
    desk = Desk()
    yield desk
    assert desk.side.close()


def prompt(slot: int = 0, n_held: int = 0, pieces: tuple[int, ...] = (4, 3)) -> SidePrompt:
    tokens = tuple(range(100, 101 + n_held + sum(pieces)))
    held = CopiedCells(dict(enumerate(tokens[:n_held]))) if n_held else None
    work = Work(
        generation_id=f"g{slot}",
        choice=0,
        tokens=tokens,
        chunks=[],  # type: ignore[arg-type]
        checkpoint_at=(n_held + pieces[0],),
        is_aside=True,
    )
    return SidePrompt(slot=slot, work=work, tokens=tokens, n_held=n_held, held=held, pieces=pieces)


def test_a_prompt_is_decoded_piece_by_piece_and_copied_out(desk: Desk) -> None:
    context = NotedContext()
    desk.contexts.append(context)
    job = prompt(n_held=2)
    desk.side.start(job)
    *progress, end = desk.until_over()
    assert [r.n_done for r in progress if isinstance(r, Progressed)] == [6, 9]
    assert isinstance(end, Prefilled)
    assert end.state == CopiedCells(dict(enumerate(job.tokens[:9])))
    assert end.copies == {6: CopiedCells(dict(enumerate(job.tokens[:6])))}
    assert not desk.side.is_active
    desk.side.close()
    assert [call[0] for call in context.calls] == [
        *("threads", "decode", "save", "threads", "decode", "save", "close"),
    ]


def test_prompts_take_turns(desk: Desk) -> None:
    first, second = NotedContext(gate=threading.Event()), NotedContext()
    desk.contexts += [first, second]
    desk.side.start(prompt(0, pieces=(1, 1, 1)))
    assert first.entered.wait(WAIT_S)
    desk.side.start(prompt(1, pieces=(1,)))
    assert first.gate
    first.gate.set()
    ends = [r.prompt.slot for r in desk.until_over(2) if isinstance(r, Prefilled)]
    assert ends == [1, 0]


def test_so_many_at_once() -> None:
    desk = Desk()
    gate = threading.Event()
    desk.contexts += [NotedContext(gate=gate) for _ in range(MAX_ACTIVE)]
    for slot in range(MAX_ACTIVE):
        assert desk.side.has_room
        desk.side.start(prompt(slot))
    assert not desk.side.has_room
    gate.set()
    desk.until_over(MAX_ACTIVE)
    assert desk.side.has_room
    assert desk.side.close()


def test_nothing_more_is_heard_of_an_abandoned_one(desk: Desk) -> None:
    old, new = NotedContext(gate=threading.Event()), NotedContext()
    desk.contexts += [old, new]
    desk.side.start(prompt(0, pieces=(1,) * 50))
    assert old.entered.wait(WAIT_S)
    desk.side.abandon(0)
    assert not desk.side.is_active
    wanted = prompt(0)
    desk.side.start(wanted)
    assert old.gate
    old.gate.set()
    assert {result.prompt for result in desk.until_over()} == {wanted}
    desk.side.close()
    assert sum(call[0] == "decode" for call in old.calls) == 1
    assert old.calls[-1] == ("close",)


def test_no_context_and_no_memory_are_no_failures_of_the_prompt(desk: Desk) -> None:
    desk.contexts += [None, NotedContext(has_memory=False), NotedContext(has_memory=False)]
    for job in (prompt(0), prompt(1, n_held=2), prompt(2)):
        desk.side.start(job)
    ends = [r for r in desk.until_over(3) if isinstance(r, NotPrefilled)]
    assert [(end.prompt.slot, end.result) for end in ends] == [(0, DECODED), (1, DECODED), (2, 0)]


def test_a_failed_call_is_told(desk: Desk) -> None:
    desk.contexts.append(NotedContext(fails=-3))
    desk.side.start(prompt())
    (end,) = desk.until_over()
    assert isinstance(end, NotPrefilled)
    assert end.result == -3


def test_whatever_is_raised_ends_that_prompt_only(desk: Desk) -> None:
    desk.side.start(prompt(0))  # there is no context to be had: IndexError
    (end,) = desk.until_over()
    assert isinstance(end, NotPrefilled)
    assert end.result != DECODED
    desk.contexts.append(NotedContext())
    desk.side.start(prompt(1))
    assert isinstance(desk.until_over()[-1], Prefilled)


def test_threads_are_divided_while_both_work(desk: Desk) -> None:
    desk.side.share(is_busy=True)
    assert desk.shared == [], "nobody to share with"
    context = NotedContext(gate=threading.Event())
    desk.contexts.append(context)
    desk.side.start(prompt(pieces=(1, 1)))
    desk.side.share(is_busy=True)
    desk.side.share(is_busy=True)
    assert context.entered.wait(WAIT_S)
    desk.side.share(is_busy=False)
    assert context.gate
    context.gate.set()
    desk.until_over()
    desk.side.share(is_busy=True)
    assert desk.shared == [True, False]
    threads = [call[1] for call in context.calls if call[0] == "threads"]
    assert threads[1] == 4, "all of them once the slots have nothing to do"


def test_closing_waits_for_one_call_and_no_longer() -> None:
    desk = Desk()
    context = NotedContext(gate=threading.Event())
    desk.contexts.append(context)
    desk.side.start(prompt(pieces=(1,) * 50))
    assert context.entered.wait(WAIT_S)
    assert context.gate
    assert not desk.side.close(), "it computes on"
    context.gate.set()
    assert desk.side.close()
    assert sum(call[0] == "decode" for call in context.calls) == 1


def test_the_bell_rings_for_what_is_there_and_no_longer(desk: Desk) -> None:
    """A bell that goes on ringing would have the loop turn round and round."""
    gate = threading.Event()
    context = NotedContext(gate=gate)
    desk.contexts.append(context)
    desk.side.start(prompt(pieces=(1, 1)))
    assert context.entered.wait(WAIT_S)
    os.write(desk.side._rope, b".")  # announced after it had been taken
    assert desk.side.results() == []
    assert not select.select([desk.side], [], [], 0)[0]
    gate.set()
    desk.until_over()


def test_out_of_memory_is_no_failure_of_the_prompt(desk: Desk) -> None:
    class Full(NotedContext):
        def decode(self, ids: Sequence[int], start: int) -> int:
            raise MemoryError

    context = Full()
    desk.contexts.append(context)
    desk.side.start(prompt())
    (end,) = desk.until_over()
    assert isinstance(end, NotPrefilled)
    assert end.result == DECODED
