"""Prompts that run ahead of their log: what is held back, told, and thrown away."""

import asyncio

import pytest

from schemas.events import Claimed, Prompt
from schemas.generation import Generation, apply_entry
from schemas.params import Params, Sampling
from schemas.rpc import Prepared
from services.engine import head_starts
from services.engine.head_starts import HeadStarts
from services.engine.jobs import build_admit, first_admit
from services.engine.protocol import Admit, Cancel, Command, Dropped, Emitted, Output
from tests.support import events

PROMPTS = (Prompt(ids=(1, 2, 3), text="abc"),)
PREPARED = Prepared(prompts=PROMPTS, params=Params(), n_ctx=64)


def admit(name: str = "g", prepared: Prepared = PREPARED) -> Admit:
    return first_admit(name, prepared, tuple(range(prepared.n_slots)))


def token(name: str, index: int = 0) -> Emitted:
    return Emitted(generation_id=name, choice=0, index=index, id=7)


def opened(name: str = "g", **changes: object) -> Generation:
    fields: dict[str, object] = {"prompts": PROMPTS, "params": Params(), **changes}
    requested = events.requested(name, **fields)
    return apply_entry(Generation(), 1, (requested,))


class Ahead:
    """Head starts, what the decoder was told, and what was told of its outputs."""

    def __init__(self) -> None:
        self.commands: list[Command] = []
        self.told: list[tuple[Output, ...]] = []
        self.starts = HeadStarts(self.commands.append, self.told.append)

    @property
    def dropped(self) -> list[str]:
        return [c.generation_id for c in self.commands if isinstance(c, Cancel) and c.is_answered]


@pytest.fixture
def ahead() -> Ahead:
    return Ahead()


def test_it_is_the_admission_that_the_log_would_ask_for() -> None:
    prompts = (*PROMPTS, Prompt(ids=(4,), text="d"))
    prepared = Prepared(prompts=prompts, params=Params(n_cmpl=2), n_slots=4, n_ctx=64)
    requested = opened(prompts=prompts, params=prepared.params).requested
    assert requested is not None
    assert admit("g", prepared) == build_admit(requested, {}, (0, 1, 2, 3))


async def test_it_is_held_back_until_its_log_is_claimed(ahead: Ahead) -> None:
    ahead.starts.begin(admit())
    assert ahead.commands == [admit()]
    assert ahead.starts.sift((token("other"), token("g", 0))) == (token("other"),)
    assert ahead.starts.sift((token("g", 1), token("g", 2))) == ()
    assert ahead.told == []
    ahead.starts.settle(opened())
    assert ahead.starts.release("g")
    assert ahead.told == [(token("g", 0),), (token("g", 1), token("g", 2))]
    assert ahead.starts.sift((token("g", 3),)) == (token("g", 3),)
    assert not ahead.starts.release("g")
    assert ahead.dropped == []


async def test_what_was_thrown_away_is_told_to_nobody(ahead: Ahead) -> None:
    ahead.starts.begin(admit())
    ahead.starts.sift((token("g"),))
    ahead.starts.drop("g")
    ahead.starts.drop("g")
    assert ahead.dropped == ["g"]
    assert ahead.starts.sift((token("g", 1), token("other"))) == (token("other"),)
    ahead.starts.settle(opened())
    assert not ahead.starts.release("g")  # so that it is admitted again
    assert ahead.starts.is_busy
    last = (token("g", 2), Dropped(generation_id="g"), token("g"))
    assert ahead.starts.sift(last) == (token("g"),)
    assert not ahead.starts.is_busy
    assert ahead.told == []


@pytest.mark.parametrize(
    "state",
    [
        opened(params=Params(sampling=Sampling(temperature=0.5))),
        opened(prompts=(Prompt(ids=(1, 2), text="ab"),)),
        apply_entry(opened(), 2, (Claimed(attempt=1, engine="other", host="h", build="b"),)),
    ],
    ids=["other parameters", "another prompt", "claimed before"],
)
async def test_only_what_the_log_asks_for_is_kept(ahead: Ahead, state: Generation) -> None:
    ahead.starts.begin(admit())
    ahead.starts.settle(state)
    assert ahead.dropped == ["g"]
    assert not ahead.starts.release("g")


async def test_nobody_opens_the_log(ahead: Ahead, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head_starts, "EXPIRY_S", 0.01)
    ahead.starts.begin(admit("late"))
    ahead.starts.begin(admit("claimed"))
    ahead.starts.settle(opened("claimed"))  # from now on the broker takes as long as it takes
    async with asyncio.timeout(5):
        while "late" in ahead.starts:  # noqa: ASYNC110 (its timer tells nobody)
            await asyncio.sleep(0.01)
    assert ahead.dropped == ["late"]
    assert ahead.starts.release("claimed")


async def test_one_that_is_known_is_not_begun_twice(ahead: Ahead) -> None:
    ahead.starts.begin(admit())
    ahead.starts.begin(admit())
    ahead.starts.drop("g")
    ahead.starts.begin(admit())
    assert [type(command) for command in ahead.commands] == [Admit, Cancel]


async def test_the_oldest_make_room(ahead: Ahead) -> None:
    two = Prepared(prompts=PROMPTS, params=Params(n_cmpl=2), n_slots=2, n_ctx=64)
    for name, prepared in (("a", PREPARED), ("b", two), ("c", PREPARED)):
        ahead.starts.begin(admit(name, prepared))
    assert (len(ahead.starts), ahead.starts.n_slots) == (3, 4)
    ahead.starts.make_room(4)
    assert ahead.dropped == []
    ahead.starts.make_room(2)
    assert ahead.dropped == ["a", "b"]
    assert ahead.starts.n_slots == 1


async def test_a_decoder_that_died_has_forgotten_all(ahead: Ahead) -> None:
    ahead.starts.begin(admit("a"))
    ahead.starts.begin(admit("b"))
    ahead.starts.drop("b")
    ahead.starts.forget()
    assert not ahead.starts.is_busy
    assert not ahead.starts.release("a")
    assert ahead.starts.sift((token("a"), token("b"))) == (token("a"), token("b"))
