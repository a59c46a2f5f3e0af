"""Cancellation that nats-py would lose."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


async def cancellable(work: Awaitable[T]) -> T:
    """What `work` gives, or CancelledError if this task was cancelled meanwhile, in every case.

    Python 3.11's `asyncio.wait_for`, which nats-py waits with, returns a result that came in the same
    moment instead; whoever loops over such requests would then run for ever.
    """
    task = asyncio.current_task()
    n_before = 0 if task is None else task.cancelling()
    try:
        return await work
    finally:
        if task is not None and task.cancelling() > n_before:
            raise asyncio.CancelledError
