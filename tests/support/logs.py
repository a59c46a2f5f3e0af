"""Waiting for what happens in a log, by following it."""

import asyncio
from collections.abc import Callable

from schemas.generation import Generation, apply_entry
from services.bus.connection import Bus
from services.bus.live_log import LiveLog
from services.bus.log import Entry

TIMEOUT_S = 10.0


async def until(bus: Bus, generation_id: str, is_there: Callable[[Generation], bool]) -> Generation:
    """The state of a log as soon as `is_there` says so of it. Raises TimeoutError."""
    found: asyncio.Future[Generation] = asyncio.get_running_loop().create_future()
    state = Generation()

    def on_entry(entry: Entry) -> None:
        nonlocal state
        state = apply_entry(state, entry.seq, entry.events)
        if is_there(state) and not found.done():
            found.set_result(state)

    log = LiveLog(bus, generation_id, on_entry)
    try:
        await log.start()
        return await asyncio.wait_for(found, TIMEOUT_S)
    finally:
        await log.stop()


async def opened(bus: Bus, generation_id: str) -> Generation:
    """Once `requested`, or an early end, is in the log."""
    return await until(bus, generation_id, lambda state: state.last_seq > 0)


async def ended(bus: Bus, generation_id: str) -> Generation:
    """Once the log is closed."""
    return await until(bus, generation_id, lambda state: state.is_closed)
