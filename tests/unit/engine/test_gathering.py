"""The moment that fast generations wait for together."""

import asyncio
import time

from services.engine.gathering import Gathering


async def test_those_who_wait_go_on_at_one_moment() -> None:
    gathering, woken = Gathering(), []

    async def wait(name: str, rest_s: float) -> None:
        await gathering.wait(rest_s)
        woken.append((name, time.monotonic()))

    begun_at = time.monotonic()
    await asyncio.gather(wait("first", 0.02), wait("second", 60.0), wait("third", 0.5))
    assert [name for name, _ in woken] == ["first", "second", "third"]
    assert woken[-1][1] - woken[0][1] < 0.02 <= woken[0][1] - begun_at + 0.001


async def test_the_next_moment_is_another_one() -> None:
    gathering = Gathering()
    await gathering.wait(0.0)
    begun_at = time.monotonic()
    await gathering.wait(0.02)
    assert time.monotonic() - begun_at >= 0.019


async def test_who_leaves_takes_nobody_along() -> None:
    gathering = Gathering()
    leaver, stayer = (asyncio.ensure_future(gathering.wait(0.01)) for _ in range(2))
    await asyncio.sleep(0)
    leaver.cancel()
    await asyncio.wait_for(stayer, 5)
