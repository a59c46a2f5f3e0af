"""Questions that any of several servers may answer, and one that is asked may be dying."""

import asyncio
from typing import TypeVar

from schemas.struct import Message
from services.bus.connection import Bus
from services.bus.errors import NoResponder, RpcTimeout
from services.bus.rpc import ask

A = TypeVar("A", bound=Message)

HEDGE_S = 1.0
MAX_NOBODY = 2
"""So often nobody may be found by those that ask all while an earlier attempt is open: whoever has that
one is leaving and may still answer, or was gone already."""


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
    n_nobody = 0
    try:
        while (left_s := give_up_at - asyncio.get_running_loop().time()) > 0:
            asking = ask(bus, subject, question, answer, timeout_s=left_s)
            attempts.add(asyncio.create_task(asking))
            until = asyncio.get_running_loop().time() + min(hedge_s, left_s)
            while (done := await _next(attempts, until)) is not None:
                is_nobody = isinstance(done.exception(), NoResponder)
                n_nobody += is_nobody
                if not is_nobody or not attempts or n_nobody == MAX_NOBODY:
                    return done.result()
            subject, hedge_s = every, 2 * hedge_s
        raise RpcTimeout(f"no answer on {one} within {timeout_s:g} s")
    finally:
        for attempt in attempts:
            attempt.cancel()
        await asyncio.gather(*attempts, return_exceptions=True)


async def _next(attempts: "set[asyncio.Task[A]]", until: float) -> "asyncio.Task[A] | None":
    """One that has ended by then, taken out of `attempts`."""
    left_s = max(0.0, until - asyncio.get_running_loop().time())
    if not attempts:
        return None
    done, _ = await asyncio.wait(attempts, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
    for attempt in done:
        attempts.discard(attempt)
        return attempt
    return None
