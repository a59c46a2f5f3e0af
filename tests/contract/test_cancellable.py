"""Waiting for the broker ends when it is cancelled, though the answer comes at that very moment."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from nats.aio.msg import Msg

from services.bus.cancellable import cancellable
from services.bus.connection import Bus
from services.bus.jetstream import api
from services.bus.requests import Requests


async def cancelled_with_its_result(
    work: Awaitable[object], replies: Callable[[], "asyncio.Future[Any]"], reply: object
) -> None:
    """Gives the reply and cancels in one turn of the loop."""
    task = asyncio.ensure_future(work)
    async with asyncio.timeout(5):
        while True:
            await asyncio.sleep(0)
            try:
                future = replies()
                break
            except (IndexError, StopIteration):
                continue
    future.set_result(reply)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_what_waits_with_wait_for() -> None:
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    work = cancellable(asyncio.wait_for(future, 5))
    await cancelled_with_its_result(work, lambda: future, 1)


async def test_what_fails_at_that_moment() -> None:
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(cancellable(asyncio.wait_for(future, 5)))
    await asyncio.sleep(0)
    future.set_exception(OSError())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_time_limit_around_it_stays_a_time_limit() -> None:
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await cancellable(future)


async def test_a_request_of_nats_py(bus: Bus) -> None:
    await bus.nc.subscribe("r.silent")
    resp_map = bus.nc._resp_map
    work = bus.nc.request("r.silent", timeout=5)
    await cancelled_with_its_result(work, lambda: next(iter(resp_map.values())), Msg(bus.nc))


async def test_a_flush(bus: Bus) -> None:
    await cancelled_with_its_result(bus.nc.flush(), lambda: bus.nc._pongs.pop(), True)


async def test_a_call_of_jetstream(bus: Bus) -> None:
    waiting = bus.part(Requests)._waiting
    work = api(bus, "INFO")
    await cancelled_with_its_result(work, lambda: next(iter(waiting.values())), b"{}")
