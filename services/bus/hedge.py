"""Questions that any of several servers may answer, and one that is asked may be dying."""

import asyncio
from typing import TypeVar

from schemas.struct import Message
from services.bus.connection import Bus
from services.bus.errors import NoResponder, RpcTimeout
from services.bus.rpc import ask

A = TypeVar("A", bound=Message)

HEDGE_S = 1.0


async def ask_any(
    bus: Bus,
    one: str,
    every: str,
    question: Message,
    answer: type[A],
    *,
    timeout_s: float,
    hedge_s: float = HEDGE_S,
) -> A:
    """The first answer of several servers. The question must not change anything.

    one: subject that reaches any one of them. every: subject that reaches all; asked after `hedge_s`
    seconds, then after twice that, and so on, while earlier attempts stay open: a slow server's answer
    counts, a dead one's is not waited for. Raises what `ask` raises.
    """
    subject = one
    give_up_at = asyncio.get_running_loop().time() + timeout_s
    attempts: set[asyncio.Task[A]] = set()
    try:
        while (left_s := give_up_at - asyncio.get_running_loop().time()) > 0:
            asking = ask(bus, subject, question, answer, timeout_s=left_s)
            attempts.add(asyncio.create_task(asking))
            if (first := await _first(attempts, min(hedge_s, left_s))) is not None:
                return first.result()
            subject, hedge_s = every, 2 * hedge_s
        raise RpcTimeout(f"no answer on {one} within {timeout_s:g} s")
    finally:
        for attempt in attempts:
            attempt.cancel()
        await asyncio.gather(*attempts, return_exceptions=True)


async def _first(attempts: "set[asyncio.Task[A]]", wait_s: float) -> "asyncio.Task[A] | None":
    """An attempt that has its answer (or its refusal), within `wait_s` seconds; one that found nobody
    counts only if no other is open."""
    loop = asyncio.get_running_loop()
    until = loop.time() + wait_s
    while attempts:
        left_s = until - loop.time()
        done, _ = await asyncio.wait(
            attempts, timeout=max(0.0, left_s), return_when=asyncio.FIRST_COMPLETED
        )
        for attempt in done:
            attempts.discard(attempt)
            if not attempts or not isinstance(attempt.exception(), NoResponder):
                return attempt
        if not done:
            return None
    return None
