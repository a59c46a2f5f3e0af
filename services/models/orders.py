"""Orders to the engine host: single-flight per engine, repeated until the host has carried them out."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from schemas.errors import LlamatapeError, RequestError
from schemas.rpc import HostOrder, StartEngine, StopEngine
from services.logs import event
from services.models.lifecycle import Order, Verb

log = logging.getLogger(__name__)

FIRST_RETRY_S = 0.05
LAST_RETRY_S = 5.0
ORDINAL_VARIABLE = "LLAMATAPE_ENGINE_ORDINAL"

Ask = Callable[[HostOrder], Awaitable[object]]
"""Asks the host once. Raises RequestError when it refuses, BusError when it is not there."""


class Orders:
    """Carries orders out in the background. Event-loop thread.

    on_refusal: told why the host does not start an engine, and an empty text when it does after all.
    """

    def __init__(self, ask: Ask, on_refusal: Callable[[str], None]) -> None:
        self._ask = ask
        self._on_refusal = on_refusal
        self._running: dict[str, tuple[HostOrder, asyncio.Task[None]]] = {}

    def give(self, order: HostOrder) -> None:
        """Begin to carry `order` out. The same order under way is joined, another one is replaced."""
        before = self._running.get(order.engine)
        if before is not None:
            if before[0] == order:
                return
            before[1].cancel()
        task = asyncio.create_task(self._carry_out(order))
        self._running[order.engine] = (order, task)
        task.add_done_callback(lambda done: self._forget(order.engine, done))

    async def first_try(self, timeout_s: float) -> None:
        """Return when everything under way is done, or after `timeout_s`."""
        if tasks := [task for _, task in self._running.values()]:
            await asyncio.wait(tasks, timeout=timeout_s)

    async def stop(self) -> None:
        """Give up what is under way. Idempotent."""
        tasks = [task for _, task in self._running.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _forget(self, engine: str, task: asyncio.Task[None]) -> None:
        if (current := self._running.get(engine)) is not None and current[1] is task:
            del self._running[engine]

    async def _carry_out(self, order: HostOrder) -> None:
        delay_s = FIRST_RETRY_S
        while not await self._try(order):
            await asyncio.sleep(delay_s)
            delay_s = min(delay_s * 2, LAST_RETRY_S)

    async def _try(self, order: HostOrder) -> bool:
        try:
            await self._ask(order)
        except RequestError as error:
            event(
                log, "order_refused", level=logging.WARNING, engine=order.engine, error=str(error)
            )
            self._on_refusal(str(error))
            return False
        except LlamatapeError as error:
            event(log, "order_deferred", level=logging.DEBUG, engine=order.engine, error=str(error))
            return False
        event(log, "order_done", order=type(order).__name__, engine=order.engine)
        self._on_refusal("")
        return True


def engine_id(model_key: str, ordinal: int) -> str:
    """The id of the model's engine number `ordinal`: always the same, so that an order repeated by a
    later process is the same order."""
    return f"e{ordinal}-{model_key}"


def host_order(
    order: Order, model_key: str, ordinals: dict[str, int], env: dict[str, str]
) -> HostOrder:
    """What to ask of the host. ordinals: number of each of our engines. env: flags of every engine."""
    if order.verb is Verb.STOP:
        return StopEngine(engine=order.engine)
    own = {ORDINAL_VARIABLE: str(ordinals[order.engine])}
    return StartEngine(model_key=model_key, engine=order.engine, env=env | own)
