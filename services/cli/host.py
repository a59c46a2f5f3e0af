"""The engine host: starts and stops engines on this machine when the models service says so."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable

from schemas import codec, subjects
from schemas.errors import RequestError
from schemas.lifecycle import HostPresence
from schemas.rpc import Done, HostAnswer, HostOrder, StartEngine, StopEngine
from services.bus import rpc
from services.bus.connection import Bus
from services.bus.errors import BusError
from services.bus.kv import Bucket
from services.cli.errors import StartError
from services.cli.supervisor import Exit, Program, Supervised
from services.logs import event

log = logging.getLogger(__name__)

PRESENCE_KIND = "host"
PRESENCE_INTERVAL_S = 2.0
PRESENCE_TTL_S = 6


class EngineHost:
    """The engines of one host. Event-loop thread only.

    program_of: what to run for an order. on_exit: told of every engine that ended by itself; False
    means that it stays down.
    """

    def __init__(
        self,
        host_id: str,
        program_of: Callable[[StartEngine], Program],
        on_exit: Callable[[Exit], bool],
    ) -> None:
        self.host_id = host_id
        self._program_of = program_of
        self._on_exit = on_exit
        self._engines: dict[str, Supervised] = {}
        self._is_stopping = False

    @property
    def engines(self) -> tuple[str, ...]:
        return tuple(self._engines)

    def pid_of(self, engine: str) -> int | None:
        return self._engines[engine].pid if engine in self._engines else None

    async def obey(self, order: HostOrder) -> HostAnswer:
        """Carry out one order; it may be repeated. Raises RequestError if that is impossible."""
        if isinstance(order, StartEngine):
            await self._start(order)
        else:
            await self._stop(order)
        return Done()

    async def _start(self, order: StartEngine) -> None:
        if self._is_stopping:
            raise RequestError.unavailable(f"host {self.host_id} is stopping")
        if order.engine in self._engines:
            return
        engine = Supervised(self._program_of(order), self._on_exit)
        self._engines[order.engine] = engine
        try:
            await engine.start()
        except StartError as error:
            del self._engines[order.engine]
            raise RequestError.server(str(error)) from error

    async def _stop(self, order: StopEngine) -> None:
        engine = self._engines.pop(order.engine, None)
        if engine is not None:
            await engine.stop(order.grace_s)

    async def stop(self, grace_s: float) -> None:
        """Stop all engines, each within `grace_s` seconds; no new one is started from now on."""
        self._is_stopping = True
        await asyncio.gather(*(engine.stop(grace_s) for engine in self._engines.values()))
        self._engines.clear()

    def kill(self) -> None:
        for engine in self._engines.values():
            engine.kill()


@contextlib.asynccontextmanager
async def serving(bus: Bus, host: EngineHost) -> AsyncGenerator[None]:
    """While inside: orders that come over the bus are obeyed, and the host's presence is told."""
    subscription = await rpc.serve(bus, subjects.host_rpc(host.host_id), HostOrder, host.obey)
    await bus.flush()
    task = asyncio.create_task(_announce(bus, host), name="host presence")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
        if bus.is_connected:
            await subscription.unsubscribe()


async def _announce(bus: Bus, host: EngineHost) -> None:
    bucket = Bucket(bus, subjects.PRESENCE_BUCKET)
    key = subjects.presence_key(PRESENCE_KIND, host.host_id)
    while True:
        presence = HostPresence(host=host.host_id, engines=host.engines)
        try:
            await bucket.put(key, codec.encode(presence), PRESENCE_TTL_S)
        except BusError as error:  # also before the api process has made the bucket
            event(log, "presence_not_told", level=logging.DEBUG, error=repr(error))
        await asyncio.sleep(PRESENCE_INTERVAL_S)
