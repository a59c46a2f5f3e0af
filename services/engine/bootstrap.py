"""Builds and runs one engine front: the only place here that makes adapters."""

import asyncio
import logging
import signal
from importlib import metadata

import uvloop

from services.bus.config import BusSettings
from services.bus.connection import connect
from services.bus.topology import ensure_topology
from services.engine.config import EngineSettings
from services.engine.errors import EngineError, ModelNotLoadable, TemplateUnusable
from services.engine.front import Front

log = logging.getLogger(__name__)

EXIT_CANNOT_LOAD = 78
"""EX_CONFIG: the launcher does not try again."""


def build_info() -> str:
    """What claims, digests and `system_fingerprint` say: the bindings' version and ours.

    Begins with b, as llama-server's build number does; clients look for that.
    """
    return f"b{metadata.version('llama-cpp-python')}-llamatape-{metadata.version('llamatape')}"


def run_engine(settings: EngineSettings, bus_settings: BusSettings) -> int:
    """Blocks until SIGTERM or SIGINT; the exit code. The caller has configured logging."""
    return uvloop.run(_run(settings, bus_settings))


async def _run(settings: EngineSettings, bus_settings: BusSettings) -> int:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    bus = await connect(bus_settings, name=f"engine {settings.engine}")
    try:
        await ensure_topology(bus)
        await Front(bus, settings, build_info()).run(stop)
    except (ModelNotLoadable, TemplateUnusable) as error:
        log.error("action=model_not_loadable error=%s", error)
        return EXIT_CANNOT_LOAD
    except EngineError as error:
        log.error("action=engine_failed error=%s", error)
        return 1
    finally:
        await bus.close()
    return 0
