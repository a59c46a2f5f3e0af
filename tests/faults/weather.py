"""What goes wrong, and when: random faults on a fleet, from a seed."""

import asyncio
import contextlib
import os
import random
import signal
from collections import Counter
from collections.abc import Awaitable, Callable

from tests.support.fleet import Fleet, Service
from tests.support.nats_nodes import NatsNode

FIRST_S = 0.5


class Weather:
    """Injects faults one after the other; what dies is started again, as a supervisor would.

    Faults overlap: a process may be dead or stopped while the next one is hit. outage_s: how long the
    broker is away at most.
    """

    def __init__(self, fleet: Fleet, seed: int, *, pause_s: float, outage_s: float) -> None:
        self._fleet = fleet
        self._random = random.Random(seed)
        self._pause_s, self._outage_s = pause_s, outage_s
        self._repairs: set[asyncio.Task[None]] = set()
        self._hurt: set[str] = set()
        self.counts: Counter[str] = Counter()

    async def rage(self, for_s: float) -> None:
        """Faults for so many seconds; all is whole again when this returns."""
        end_at = asyncio.get_running_loop().time() + for_s
        await asyncio.sleep(FIRST_S)
        while asyncio.get_running_loop().time() < end_at:
            self._restart_who_left()
            await self._next()
            await asyncio.sleep(self._random.uniform(0.3, 1.7) * self._pause_s)
        await asyncio.gather(*self._repairs)

    def _restart_who_left(self) -> None:
        """A service may end by itself, for want of a broker when it starts."""
        for service in self._fleet.services.values():
            if not service.is_running and service.name not in self._hurt:
                self.counts[f"({service.command} left)"] += 1
                service.start()

    async def _next(self) -> None:
        kinds: list[tuple[int, str, Callable[[], Awaitable[bool]]]] = [
            (4, "decoder killed", lambda: self._decoder(signal.SIGKILL)),
            (2, "decoder stopped", lambda: self._decoder(signal.SIGSTOP)),
            (4, "engine killed", lambda: self._kill("engine")),
            (2, "engine frozen", lambda: self._freeze("engine")),
            (2, "engine drained", lambda: self._drain("engine")),
            (2, "gateway killed", lambda: self._kill("gateway")),
            (1, "gateway frozen", lambda: self._freeze("gateway")),
            (1, "gateway drained", lambda: self._drain("gateway")),
            (1, "streams killed", lambda: self._kill("streams")),
            (1, "streams drained", lambda: self._drain("streams")),
            (1, "models killed", lambda: self._kill("models")),
            (2, "broker killed", lambda: self._broker(signal.SIGKILL)),
            (1, "broker restarted", lambda: self._broker(signal.SIGTERM)),
            (1, "broker frozen", self._broker_frozen),
        ]
        weights = [weight for weight, _, _ in kinds]
        (chosen,) = self._random.choices(kinds, weights)
        _, name, strike = chosen
        if await strike():
            self.counts[name] += 1

    def _victim(self, command: str) -> Service | None:
        """A service of that kind to which nothing is being done."""
        whole = [s for s in self._fleet.of(command) if s.is_running and s.name not in self._hurt]
        return self._random.choice(whole) if whole else None

    async def _decoder(self, number: signal.Signals) -> bool:
        engine = self._victim("engine")
        pids = [] if engine is None else await asyncio.to_thread(_decoders, engine)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        return bool(pids)

    async def _kill(self, command: str) -> bool:
        return self._hit(self._victim(command), lambda s: asyncio.to_thread(s.kill))

    async def _drain(self, command: str) -> bool:
        async def drain(service: Service) -> None:
            code = await asyncio.to_thread(service.stop)
            # One that has just been started again does not listen to signals yet.
            assert code in (0, -signal.SIGTERM), service.session.stderr[-3000:]

        return self._hit(self._victim(command), drain)

    async def _freeze(self, command: str) -> bool:
        async def freeze(service: Service) -> None:
            service.send(signal.SIGSTOP)
            await asyncio.sleep(self._random.uniform(0.5, 4.0))
            service.send(signal.SIGCONT)

        return self._hit(self._victim(command), freeze)

    def _hit(self, victim: Service | None, strike: Callable[[Service], Awaitable[None]]) -> bool:
        """Begin to strike, and see to it that the victim runs again afterwards."""
        if victim is None:
            return False
        self._hurt.add(victim.name)
        self._spawn(self._strike(victim, strike))
        return True

    async def _strike(self, victim: Service, strike: Callable[[Service], Awaitable[None]]) -> None:
        await strike(victim)
        if not victim.is_running:
            await asyncio.sleep(self._random.uniform(0.0, 0.7))
            victim.start()
        self._hurt.discard(victim.name)

    async def _broker(self, number: signal.Signals) -> bool:
        async def strike(node: NatsNode) -> None:
            await asyncio.to_thread(node.kill, number)
            await asyncio.sleep(self._random.uniform(0.0, self._outage_s))
            await asyncio.to_thread(node.start)

        return self._hit_broker(strike)

    async def _broker_frozen(self) -> bool:
        async def strike(node: NatsNode) -> None:
            node.send(signal.SIGSTOP)
            await asyncio.sleep(self._random.uniform(0.2, self._outage_s))
            node.send(signal.SIGCONT)

        return self._hit_broker(strike)

    def _hit_broker(self, strike: Callable[[NatsNode], Awaitable[None]]) -> bool:
        """One node at a time: a cluster without a majority is another test."""
        if "broker" in self._hurt:
            return False
        self._hurt.add("broker")
        node = self._random.choice(self._fleet.nats.nodes)

        async def run() -> None:
            await strike(node)
            self._hurt.discard("broker")

        self._spawn(run())
        return True

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._repairs.add(task)


def _decoders(engine: Service) -> list[int]:
    return [pid for pid, line in engine.session.members().items() if " decoder " in line]
