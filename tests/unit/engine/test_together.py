"""Admissions that wait for each other."""

import asyncio

from schemas.params import Params
from services.engine.protocol import Admit, Cancel, Command
from services.engine.together import HOLD_S, Together


def admit(name: str) -> Admit:
    return Admit(generation_id=name, params=Params(), choices=())


class Sent:
    """What the decoder hears; others are about to come until so many are held."""

    def __init__(self, n_expected: int) -> None:
        self.commands: list[Command] = []
        self.together = Together(self.commands.append, lambda n_held: n_held < n_expected)

    @property
    def ids(self) -> list[str]:
        return [c.generation_id for c in self.commands if isinstance(c, Admit | Cancel)]


def test_one_that_is_alone_goes_at_once() -> None:
    sent = Sent(1)
    sent.together.send(admit("a"))
    assert sent.ids == ["a"]


async def test_those_that_come_together_go_together() -> None:
    sent = Sent(3)
    for name in "abc":
        assert sent.ids == []
        sent.together.send(admit(name))
    assert sent.ids == ["a", "b", "c"]


async def test_nobody_waits_long_for_one_that_does_not_come() -> None:
    sent = Sent(2)
    sent.together.send(admit("a"))
    await asyncio.sleep(3 * HOLD_S)
    assert sent.ids == ["a"]


async def test_other_commands_overtake_nothing() -> None:
    sent = Sent(2)
    sent.together.send(admit("a"))
    sent.together.send(Cancel(generation_id="a"))
    assert [type(command) for command in sent.commands] == [Admit, Cancel]


async def test_what_is_held_back_when_the_decoder_dies_is_forgotten() -> None:
    sent = Sent(2)
    sent.together.send(admit("a"))
    sent.together.forget()
    await asyncio.sleep(3 * HOLD_S)
    sent.together.send(Cancel(generation_id="b"))
    assert sent.ids == ["b"]
