"""Noticing that the client hung up while an answer is being waited for."""

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

from starlette.types import Receive

T = TypeVar("T")


class ClientGone(Exception):
    """The client hung up before its answer was there."""


async def unless_gone(receive: Receive, work: Coroutine[object, object, T]) -> T:
    """The result of `work`. Raises ClientGone, and stops `work`, if the client hangs up first.

    receive: of a request whose body has been read. What `work` raises goes through.
    """
    working = asyncio.create_task(work)
    watching = asyncio.create_task(until_gone(receive))
    try:
        await asyncio.wait((working, watching), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientGone
    finally:
        working.cancel()
        watching.cancel()


async def until_gone(receive: Receive) -> None:
    """Return when the client hangs up."""
    while (await receive())["type"] != "http.disconnect":
        pass
