"""The control plane between a real broker, a real SQLite file, and a fake host with fake engines."""

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from schemas import codec, subjects
from schemas.errors import RequestError
from schemas.lifecycle import FAILED, LOADED, LOADING, UNLOADED, ModelStatus
from schemas.rpc import Done, HostOrder, StopEngine
from services.bus.config import BusSettings
from services.bus.connection import Bus, connect
from services.bus.kv import Bucket
from services.bus.rpc import serve
from services.bus.topology import ensure_topology
from services.cli.broker import start_broker
from services.models import bootstrap
from services.models.bootstrap import run_models
from services.models.config import ModelsSettings
from services.models.orders import engine_id
from services.models.registry import Transition, open_registry
from services.models.service import ModelsService
from tests.support.engines import FakeEngine, FakeHost, Gateway

MODEL = Path(__file__).resolve().parents[2] / "models" / "stories-tiny.gguf"


@pytest.fixture
def settings(tmp_path: Path) -> ModelsSettings:
    """Keys differ from test to test, since the broker is shared by all of them."""
    name = tmp_path.name
    return ModelsSettings(
        database_url=f"sqlite+aiosqlite:///{tmp_path / 'llamatape.db'}",
        host=f"h-{subjects.model_key(name)}",
        model_name=name,
        model_key=subjects.model_key(name),
        model_path=str(MODEL),
        aliases=("tiny",),
        tags=("small",),
        engine_env=(("LLAMA_ARG_CTX_SIZE", "128"),),
    )


@pytest.fixture
async def host(bus: Bus, settings: ModelsSettings) -> FakeHost:
    made = FakeHost(bus, settings.host)
    await made.start()
    return made


@pytest.fixture
async def engine(bus: Bus, settings: ModelsSettings) -> AsyncIterator[FakeEngine]:
    made = FakeEngine(bus, engine_id(settings.model_key, 0), settings.model_key)
    yield made
    await made.vanish()


@pytest.fixture
async def gateway(bus: Bus, settings: ModelsSettings) -> AsyncIterator[Gateway]:
    made = Gateway(bus, settings.model_key)
    await made.start()
    yield made
    await made.stop()


@asynccontextmanager
async def models_process(
    bus_settings: BusSettings, settings: ModelsSettings
) -> AsyncIterator[ModelsService]:
    """The service on a connection of its own, as in its own process."""
    bus = await connect(bus_settings, name="models")
    try:
        async with run_models(bus, settings) as service:
            yield service
    finally:
        await bus.close()


async def history(settings: ModelsSettings) -> list[Transition]:
    registry = await open_registry(settings.database_url)
    try:
        return await registry.history(settings.model_key)
    finally:
        await registry.close()


def path_of(changes: list[Transition]) -> list[tuple[str, str]]:
    return [(change.to_status, change.reason) for change in changes]


async def test_from_order_to_loaded_to_stopped(
    bus_settings: BusSettings,
    settings: ModelsSettings,
    host: FakeHost,
    engine: FakeEngine,
    gateway: Gateway,
) -> None:
    async with models_process(bus_settings, settings):
        order = await host.started()
        assert order.engine == engine_id(settings.model_key, 0)
        assert order.env == {"LLAMA_ARG_CTX_SIZE": "128", "LLAMATAPE_ENGINE_ORDINAL": "0"}
        assert (await gateway.wait_for(LOADING)).name == settings.model_name
        await engine.load()
        told = await gateway.wait_for(LOADED)
        assert (told.aliases, told.tags, told.path) == (("tiny",), ("small",), str(MODEL))
    await gateway.wait_for(UNLOADED)
    assert path_of(await history(settings)) == [
        (LOADING, "ordered"),
        (LOADED, "engine_loaded"),
        (UNLOADED, "stopped"),
    ]
    assert host.orders.empty()


async def test_the_times_are_those_of_the_decisions(
    monkeypatch: pytest.MonkeyPatch,
    bus_settings: BusSettings,
    settings: ModelsSettings,
    engine: FakeEngine,
    gateway: Gateway,
) -> None:
    """A database that opens late holds the history as it was."""
    is_open = asyncio.Event()
    opening = bootstrap._open_records  # pyright: ignore[reportPrivateUsage]

    async def open_late(url: str) -> object:
        await is_open.wait()
        return await opening(url)

    monkeypatch.setattr(bootstrap, "_open_records", open_late)
    async with models_process(bus_settings, settings):
        await engine.load()
        await gateway.wait_for(LOADED)
        loaded_at_ms = time.time_ns() // 1_000_000
        is_open.set()
        await gateway.wait_for_digest()
    changes = await history(settings)
    assert [change.to_status for change in changes] == [LOADING, LOADED, UNLOADED]
    assert changes[0].at_ms <= changes[1].at_ms <= loaded_at_ms


async def test_gateways_hear_of_loaded_within_50_ms(
    bus_settings: BusSettings, settings: ModelsSettings, engine: FakeEngine, gateway: Gateway
) -> None:
    async with models_process(bus_settings, settings):
        await gateway.wait_for_digest()  # nothing else is going on any more
        delays_s: list[float] = []
        for _ in range(5):
            await engine.say(LOADING)
            await gateway.wait_for(LOADING)
            begin = time.perf_counter()
            await engine.say(LOADED, 1.0)
            await gateway.wait_for(LOADED)
            delays_s.append(time.perf_counter() - begin)
        assert min(delays_s) < 0.05, delays_s


async def test_an_engine_that_vanishes_turns_clients_away_and_is_ordered_again(
    bus_settings: BusSettings,
    settings: ModelsSettings,
    host: FakeHost,
    engine: FakeEngine,
    gateway: Gateway,
) -> None:
    async with models_process(bus_settings, settings):
        first = await host.started()
        await engine.load()
        await gateway.wait_for(LOADED)
        await engine.vanish()
        await gateway.wait_for(LOADING)
        assert await host.started() == first
        await engine.load()
        await gateway.wait_for(LOADED)
    assert path_of(await history(settings))[1:4] == [
        (LOADED, "engine_loaded"),
        (LOADING, "engine_lost"),
        (LOADED, "engine_loaded"),
    ]


async def test_an_orderly_end_is_no_loss(
    bus_settings: BusSettings, settings: ModelsSettings, engine: FakeEngine, gateway: Gateway
) -> None:
    """The launcher stops engines first, then this process."""
    async with models_process(bus_settings, settings):
        await engine.load()
        await gateway.wait_for(LOADED)
        await engine.vanish()
        await gateway.wait_for(LOADING)
    assert path_of(await history(settings))[1:] == [
        (LOADED, "engine_loaded"),
        (UNLOADED, "stopped"),
    ]


async def test_an_engine_that_falls_silent_expires(
    bus_settings: BusSettings, settings: ModelsSettings, engine: FakeEngine, gateway: Gateway
) -> None:
    async with models_process(bus_settings, settings):
        await engine.load()
        await gateway.wait_for(LOADED)
        await gateway.wait_for(LOADING)  # it is never heard of again


async def test_a_failure_is_told_and_stays(
    bus_settings: BusSettings, settings: ModelsSettings, engine: FakeEngine, gateway: Gateway
) -> None:
    async with models_process(bus_settings, settings) as service:
        await engine.say(FAILED, error="no memory")
        assert (await gateway.wait_for(FAILED)).error == "no memory"
        await engine.vanish()
        await gateway.wait_for_digest()
        assert service.status.status == FAILED
    assert [c.error for c in await history(settings) if c.to_status == FAILED] == ["no memory"]


async def test_a_late_host_gets_the_order(
    bus: Bus, bus_settings: BusSettings, settings: ModelsSettings
) -> None:
    async with models_process(bus_settings, settings):
        host = FakeHost(bus, settings.host)
        await host.start()
        assert (await host.started()).model_key == settings.model_key


async def test_a_host_that_refuses_is_a_failure(
    bus: Bus, bus_settings: BusSettings, settings: ModelsSettings, gateway: Gateway
) -> None:
    refusals = [RequestError.server("cannot start an engine: no memory")]

    async def obey(order: HostOrder) -> Done:
        if refusals:
            raise refusals.pop()
        await gateway.wait_for(FAILED)
        return Done()

    await serve(bus, subjects.host_rpc(settings.host), HostOrder, obey)
    await bus.flush()
    async with models_process(bus_settings, settings):
        await gateway.wait_for(FAILED)
        await gateway.wait_for(LOADING)
    assert "no memory" in next(s for s in gateway.seen if s.status == FAILED).error


async def test_a_restarted_control_plane_finds_the_engine_that_runs(
    bus_settings: BusSettings,
    settings: ModelsSettings,
    host: FakeHost,
    engine: FakeEngine,
    gateway: Gateway,
) -> None:
    await engine.answer()
    await engine.load()
    async with models_process(bus_settings, settings):
        assert [status.status for status in gateway.seen] == [LOADED], "never loading in between"
        assert (await host.started()).engine == engine_id(settings.model_key, 0)


async def test_presence_left_over_from_a_crash_is_not_believed(
    bus_settings: BusSettings, settings: ModelsSettings, engine: FakeEngine, gateway: Gateway
) -> None:
    await engine.load()  # says so, but nobody answers
    async with models_process(bus_settings, settings):
        await gateway.wait_for(LOADING)
        assert LOADED not in [status.status for status in gateway.seen]


async def test_a_stale_mirror_is_true_before_anybody_is_served(
    bus: Bus, bus_settings: BusSettings, settings: ModelsSettings, gateway: Gateway
) -> None:
    bucket = Bucket(bus, subjects.MODELS_BUCKET)
    async with models_process(bus_settings, settings) as service:
        stale = codec.to_builtins(service.status)
        assert isinstance(stale, dict)
        stale["status"] = LOADED
    await bucket.put(settings.model_key, codec.pack(stale))
    await gateway.wait_for(LOADED)
    async with models_process(bus_settings, settings):
        value = await bucket.get(settings.model_key)
        assert value is not None
        assert codec.decode(value.value, ModelStatus).status == LOADING


async def test_engines_of_others_are_only_observed(
    bus_settings: BusSettings, settings: ModelsSettings, bus: Bus, gateway: Gateway
) -> None:
    other = FakeEngine(bus, "e-started-by-hand", settings.model_key)
    async with models_process(bus_settings, replace(settings, host="")):
        await gateway.wait_for(UNLOADED)
        await other.load()
        await gateway.wait_for(LOADED)
        await other.vanish()
        await gateway.wait_for(UNLOADED)
    assert path_of(await history(settings))[-1] == (UNLOADED, "engine_lost")


async def test_unload_and_load_again(
    bus_settings: BusSettings,
    settings: ModelsSettings,
    host: FakeHost,
    engine: FakeEngine,
    gateway: Gateway,
) -> None:
    async with models_process(bus_settings, settings) as service:
        start = await host.started()
        await engine.load()
        await gateway.wait_for(LOADED)
        for _ in range(3):
            service.unload()
        await gateway.wait_for(UNLOADED)
        assert await host.orders.get() == StopEngine(engine=start.engine)
        await engine.vanish()
        service.load()
        service.load()
        assert await host.started() == start
        assert host.orders.empty()


async def test_the_digest_is_that_of_the_file(
    bus_settings: BusSettings, settings: ModelsSettings, gateway: Gateway
) -> None:
    async with models_process(bus_settings, settings):
        assert await gateway.wait_for_digest() == hashlib.sha256(MODEL.read_bytes()).hexdigest()
        first_seen_at_s = gateway.seen[-1].created_at_s
    gateway.seen.clear()
    async with models_process(bus_settings, settings):
        await gateway.wait_for_digest()
        assert gateway.seen[-1].created_at_s == first_seen_at_s


async def test_a_model_file_that_is_gone_harms_nobody(
    bus_settings: BusSettings, settings: ModelsSettings, engine: FakeEngine, gateway: Gateway
) -> None:
    async with models_process(bus_settings, replace(settings, model_path="/nowhere.gguf")):
        await engine.load()
        assert (await gateway.wait_for(LOADED)).digest == ""


async def test_a_database_that_cannot_be_used_does_not_stop_serving(
    bus_settings: BusSettings,
    settings: ModelsSettings,
    engine: FakeEngine,
    gateway: Gateway,
    tmp_path: Path,
) -> None:
    (tmp_path / "file").touch()
    broken = f"sqlite+aiosqlite:///{tmp_path / 'file' / 'x.db'}"
    async with models_process(bus_settings, replace(settings, database_url=broken)):
        await engine.load()
        await gateway.wait_for(LOADED)


async def test_several_engines_have_numbers(
    bus_settings: BusSettings, settings: ModelsSettings, host: FakeHost
) -> None:
    async with models_process(bus_settings, replace(settings, n_engines=3)):
        orders = [await host.started() for _ in range(3)]
    assert {order.env["LLAMATAPE_ENGINE_ORDINAL"] for order in orders} == {"0", "1", "2"}
    assert len({order.engine for order in orders}) == 3


async def test_without_a_broker_the_end_comes_all_the_same(
    tmp_path: Path, settings: ModelsSettings
) -> None:
    broker = start_broker(tmp_path / "own")
    bus = await connect(BusSettings(url=broker.url, token=broker.token), name="models")
    try:
        await ensure_topology(bus)
        async with run_models(bus, settings):
            broker.kill()
            begin = time.monotonic()
        assert time.monotonic() - begin < 3
    finally:
        await bus.close()
    assert path_of(await history(settings)) == [(LOADING, "ordered"), (UNLOADED, "stopped")]
