"""Noticing that the client hung up while an answer is being waited for."""

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

from starlette.requests import ClientDisconnect, Request

T = TypeVar("T")


async def unless_gone(request: Request, work: Coroutine[object, object, T]) -> T:
    """The result of `work`. Raises ClientDisconnect, and stops `work`, if the client hangs up first.

    The body of `request` has been read already. What `work` raises goes through.
    """
    working = asyncio.create_task(work)
    watching = asyncio.create_task(until_gone(request))
    try:
        await asyncio.wait((working, watching), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientDisconnect
    finally:
        working.cancel()
        watching.cancel()


async def until_gone(request: Request) -> None:
    """Return when the client hangs up."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
