"""Questions to the engines of the model."""

import asyncio
from typing import TypeVar

import msgspec

from schemas import codec, subjects
from schemas.errors import RequestError, SchemaError
from schemas.lifecycle import LOADED, EnginePresence
from schemas.rpc import (
    ChangeSlot,
    ControlGeneration,
    ControlTaken,
    DescribeMetrics,
    DescribeSlots,
    MetricsDescription,
    SlotChanged,
    SlotsDescription,
)
from schemas.struct import Message
from services.bus.connection import Bus
from services.bus.errors import BusUnavailable, NoResponder, RpcTimeout
from services.bus.hedge import ask_any
from services.bus.kv import Bucket
from services.bus.rpc import ask
from services.gateway import errors
from services.gateway.slot_numbers import address_of

A = TypeVar("A", bound=Message)

METRICS_TIMEOUT_S = 2.0

QUESTION_RESERVE_BYTES = 64 * 1024
"""What a question holds beside the client's JSON, at most."""


class Engines:
    """The engine fronts that serve one model, reached over the bus."""

    def __init__(self, bus: Bus, model_key: str, timeout_s: float) -> None:
        self._bus = bus
        self._model_key = model_key
        self._timeout_s = timeout_s

    async def ask(self, question: Message, answer: type[A], *, n_bytes: int = 0) -> A:
        """Ask any engine, and all of them if that does not answer soon.

        n_bytes: of the client's JSON inside `question`.

        Raises RequestError for a refusal and for what is too large for the broker; NoResponder,
        RpcTimeout, and BusUnavailable at once while there is no connection.
        """
        self.require_connection()
        if n_bytes > self._bus.nc.max_payload - QUESTION_RESERVE_BYTES:
            raise RequestError(errors.too_large_to_keep())
        one, every = subjects.engine_rpc(self._model_key), subjects.engines_rpc(self._model_key)
        return await ask_any(self._bus, one, every, question, answer, timeout_s=self._timeout_s)

    def require_connection(self) -> None:
        """Raise BusUnavailable while the broker is away: what is sent then would wait in a buffer."""
        if not self._bus.is_connected:
            raise BusUnavailable("not connected to the broker")

    async def slots(self) -> list[SlotsDescription]:
        """The slots of every loaded engine, in the order of their ordinals."""
        engines = await self._present()
        return await asyncio.gather(*(self._slots_of(presence.engine) for presence in engines))

    async def change_slot(
        self, order: ChangeSlot, n_slots: int, *, timeout_s: float
    ) -> SlotChanged:
        """Give an order about a slot, numbered as clients do, to the engine that has it.

        n_slots: of each engine. Raises as `ask`, NoResponder also where that engine is not there.
        """
        engines = {presence.ordinal: presence.engine for presence in await self._present()}
        if not engines:
            raise NoResponder("no engine is loaded")
        address = address_of(order.slot, n_slots, engines)
        if address.ordinal not in engines:
            raise NoResponder(f"engine {address.ordinal} is not there")
        subject = subjects.engine_rpc(self._model_key, engines[address.ordinal])
        local = msgspec.structs.replace(order, slot=address.slot)
        return await ask(self._bus, subject, local, SlotChanged, timeout_s=timeout_s)

    async def ordinal_of(self, slot: int, n_slots: int) -> int | None:
        """The engine that has a slot, by its number; None where any may take the task: there is only
        one, or that one is not there."""
        ordinals = {presence.ordinal for presence in await self._present()}
        if len(ordinals) < 2:
            return None
        ordinal = address_of(slot, n_slots, ordinals).ordinal
        return ordinal if ordinal in ordinals else None

    async def metrics(self) -> tuple[MetricsDescription, ...]:
        """What every loaded engine counted; one that does not answer in time is left out."""
        engines = await self._present()
        asked = [self._metrics_of(presence.engine) for presence in engines]
        found = await asyncio.gather(*asked)
        return tuple(one for one in found if one is not None)

    async def _metrics_of(self, engine: str) -> MetricsDescription | None:
        subject = subjects.engine_rpc(self._model_key, engine)
        try:
            return await ask(
                self._bus,
                subject,
                DescribeMetrics(),
                MetricsDescription,
                timeout_s=METRICS_TIMEOUT_S,
            )
        except (NoResponder, RpcTimeout):
            return None

    async def control(self, order: ControlGeneration) -> ControlTaken | None:
        """Give an order to the engine that runs a generation; None if none of them does."""
        asked = [self._order(presence.engine, order) for presence in await self._present()]
        found = await asyncio.gather(*asked)
        return next((taken for taken in found if taken is not None and taken.is_known), None)

    async def _order(self, engine: str, order: ControlGeneration) -> ControlTaken | None:
        subject = subjects.engine_rpc(self._model_key, engine)
        try:
            return await ask(self._bus, subject, order, ControlTaken, timeout_s=self._timeout_s)
        except (NoResponder, RpcTimeout):
            return None

    async def _slots_of(self, engine: str) -> SlotsDescription:
        subject = subjects.engine_rpc(self._model_key, engine)
        question = DescribeSlots()
        return await ask(self._bus, subject, question, SlotsDescription, timeout_s=self._timeout_s)

    async def _present(self) -> list[EnginePresence]:
        self.require_connection()
        bucket = Bucket(self._bus, subjects.PRESENCE_BUCKET)
        values = (await bucket.entries(subjects.presence_key("engine", "*"))).values()
        engines = [presence for value in values if (presence := _presence(value)) is not None]
        ours = [e for e in engines if e.model_key == self._model_key and e.status == LOADED]
        return sorted(ours, key=lambda presence: (presence.ordinal, presence.engine))


def _presence(value: bytes) -> EnginePresence | None:
    try:
        return codec.decode(value, EnginePresence)
    except SchemaError:
        return None
