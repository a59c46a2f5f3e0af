"""Builds the models service of one process. The only place of this package that makes adapters."""

import asyncio
import contextlib
import importlib
import time
from collections.abc import AsyncGenerator
from pathlib import Path

from schemas import subjects
from schemas.errors import LlamatapeError
from schemas.rpc import DescribeSlots, Done, HostOrder, ListModels, SlotsDescription
from services.bus.connection import Bus
from services.bus.errors import NoResponder
from services.bus.kv import Bucket
from services.bus.rpc import ask, serve
from services.models.catalog import spec_of
from services.models.config import ModelsSettings
from services.models.journal import Records
from services.models.keeper import Keeper
from services.models.keys.mirror import KeyMirror, Rows
from services.models.lifecycle import Order, Wish
from services.models.listing import Listing
from services.models.mirror import Mirror
from services.models.observer import Observer
from services.models.orders import engine_id, host_order
from services.models.service import ModelsService
from services.models.shelf import Folders

ORDER_TIMEOUT_S = 5.0
PING_TIMEOUT_S = 0.5


@contextlib.asynccontextmanager
async def run_models(bus: Bus, settings: ModelsSettings) -> AsyncGenerator[ModelsService]:
    """Run the control plane while the context is open; the topology must be there already.

    On entry gateways' mirror is true and the engines are ordered; the database is opened behind.
    Raises BusUnavailable on entry. On exit `stopped` is recorded if this process gave the orders.
    """
    service = _build(bus, settings)
    try:
        await service.start()
        async with mirroring_keys(bus, settings.database_url):
            yield service
    finally:
        await service.stop()


@contextlib.asynccontextmanager
async def mirroring_keys(bus: Bus, database_url: str) -> AsyncGenerator[None]:
    """While inside, gateways learn of the keys in the database; of the first ones once it is open."""

    async def open_rows() -> Rows:
        await asyncio.to_thread(importlib.import_module, "services.models.keys.store")
        from services.models.keys.store import open_keys

        return await open_keys(database_url)

    mirror = KeyMirror(open_rows, Bucket(bus, subjects.API_KEYS_BUCKET), _now_ms)
    task = asyncio.create_task(mirror.run(), name="keys")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


@contextlib.asynccontextmanager
async def run_listing(bus: Bus, settings: ModelsSettings) -> AsyncGenerator[None]:
    """Answer which models there are, while the context is open. Raises BusUnavailable on entry."""
    folders = Folders(
        hub=Path(settings.hub) if settings.hub else None,
        models=Path(settings.models_dir) if settings.models_dir else None,
    )
    listing = Listing(folders, lambda: _open_records(settings.database_url))
    subscription = await serve(
        bus, subjects.MODELS_RPC, ListModels, listing.answer, queue=subjects.MODELS_RPC
    )
    listing.start()
    try:
        async with mirroring_keys(bus, settings.database_url):
            yield
    finally:
        await listing.stop()
        if bus.is_connected:
            await subscription.unsubscribe()


def _build(bus: Bus, settings: ModelsSettings) -> ModelsService:
    spec = spec_of(settings)
    presence = Bucket(bus, subjects.PRESENCE_BUCKET)
    engines = tuple(engine_id(settings.model_key, n) for n in range(settings.n_engines))
    ordinals = {engine: ordinal for ordinal, engine in enumerate(engines)}

    async def is_there(engine: str) -> bool:
        subject = subjects.engine_rpc(settings.model_key, engine)
        try:
            await ask(bus, subject, DescribeSlots(), SlotsDescription, timeout_s=PING_TIMEOUT_S)
        except NoResponder:
            return False
        except LlamatapeError:
            return True  # busy, but there
        return True

    async def ask_host(order: HostOrder) -> Done:
        subject = subjects.host_rpc(settings.host)
        return await ask(bus, subject, order, Done, timeout_s=ORDER_TIMEOUT_S)

    def to_host(order: Order) -> HostOrder:
        return host_order(order, settings.model_key, ordinals, dict(settings.engine_env))

    return ModelsService(
        spec=spec,
        wish=Wish.LOAD if settings.host else Wish.OBSERVE,
        engines=engines,
        observe=lambda on_change: Observer(presence, settings.model_key, is_there, on_change),
        mirror=Mirror(Bucket(bus, subjects.MODELS_BUCKET)),
        ask=ask_host,
        to_host=to_host,
        keep=lambda on_change: Keeper(
            spec=spec,
            open_records=lambda: _open_records(settings.database_url),
            first_seen_ms=_now_ms(),
            on_change=on_change,
            receipts_path=settings.receipts_path,
        ),
        now_ms=_now_ms,
    )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


async def _open_records(url: str) -> Records:
    # SQLAlchemy takes as long to import as all the rest of this process: not before the engine is
    # ordered, and not on the thread that starts to serve.
    await asyncio.to_thread(importlib.import_module, "services.models.registry")
    from services.models.registry import open_registry

    return await open_registry(url)
