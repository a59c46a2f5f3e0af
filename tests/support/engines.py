"""A fake engine host and fake engines: what the control plane sees of the real ones."""

import asyncio

from schemas import codec, subjects
from schemas.lifecycle import LOADED, LOADING, EnginePresence, ModelStatus
from schemas.rpc import (
    DescribeSlots,
    Done,
    EngineQuestion,
    HostOrder,
    SlotsDescription,
    StartEngine,
)
from services.bus.connection import Bus
from services.bus.kv import Bucket, Watch
from services.bus.rpc import serve

PRESENCE_TTL_S = 2


class FakeHost:
    """Obeys by writing the order down; a test plays the engine with FakeEngine."""

    def __init__(self, bus: Bus, host: str) -> None:
        self._bus, self._host = bus, host
        self.orders: asyncio.Queue[HostOrder] = asyncio.Queue()

    async def start(self) -> None:
        await serve(self._bus, subjects.host_rpc(self._host), HostOrder, self._obey)
        await self._bus.flush()

    async def started(self) -> StartEngine:
        """The next order, which must be to start."""
        order = await self.orders.get()
        assert isinstance(order, StartEngine)
        return order

    async def _obey(self, order: HostOrder) -> Done:
        self.orders.put_nowait(order)
        return Done()


class FakeEngine:
    """Publishes presence when told so, and answers one question."""

    def __init__(self, bus: Bus, engine: str, model_key: str) -> None:
        self._bus, self._bucket = bus, Bucket(bus, subjects.PRESENCE_BUCKET)
        self._engine, self._model_key = engine, model_key

    async def answer(self) -> None:
        """Be there for whoever asks."""
        subject = subjects.engine_rpc(self._model_key, self._engine)
        await serve(self._bus, subject, EngineQuestion, self._describe)
        await self._bus.flush()

    async def say(self, status: str, progress: float = 0.0, error: str = "") -> None:
        presence = EnginePresence(
            engine=self._engine,
            host="h",
            model_key=self._model_key,
            status=status,
            progress=progress,
            error=error,
        )
        await self._bucket.put(self._key, codec.encode(presence), PRESENCE_TTL_S)

    async def load(self) -> None:
        await self.say(LOADING)
        await self.say(LOADED, 1.0)

    async def vanish(self) -> None:
        await self._bucket.delete(self._key)

    @property
    def _key(self) -> str:
        return subjects.presence_key("engine", self._engine)

    async def _describe(self, question: EngineQuestion) -> SlotsDescription:
        assert isinstance(question, DescribeSlots)
        return SlotsDescription(engine=self._engine, slots=())


class Gateway:
    """What a gateway sees: every value of the mirror, in order."""

    def __init__(self, bus: Bus, model_key: str) -> None:
        self._bucket = Bucket(bus, subjects.MODELS_BUCKET)
        self._model_key = model_key
        self._news = asyncio.Event()
        self._watch: Watch | None = None
        self.seen: list[ModelStatus] = []

    async def start(self) -> None:
        self._watch = await self._bucket.watch(self._on_value, self._model_key)

    async def stop(self) -> None:
        if self._watch is not None:
            await self._watch.stop()

    async def wait_for(self, status: str, timeout_s: float = 10.0) -> ModelStatus:
        """Return when the last value has that status."""
        async with asyncio.timeout(timeout_s):
            while not self.seen or self.seen[-1].status != status:
                self._news.clear()
                await self._news.wait()
        return self.seen[-1]

    async def wait_for_digest(self, timeout_s: float = 10.0) -> str:
        async with asyncio.timeout(timeout_s):
            while not self.seen or not self.seen[-1].digest:
                self._news.clear()
                await self._news.wait()
        return self.seen[-1].digest

    def _on_value(self, _key: str, value: bytes | None) -> None:
        if value is not None:
            self.seen.append(codec.decode(value, ModelStatus))
            self._news.set()
