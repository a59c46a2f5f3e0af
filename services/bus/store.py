"""How full the store of logs is, so that nothing new is let in while what runs can still end."""

import asyncio

from schemas import subjects
from services.bus.connection import Bus
from services.bus.errors import BusUnavailable
from services.bus.jetstream import api

NEARLY_FULL = 0.85
LOOK_S = 1.0


class StoreGauge:
    """Looks at most once a second, and only where the store has a limit. One per connection."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._looked_at = float("-inf")
        self._is_nearly_full = False

    async def is_nearly_full(self) -> bool:
        """Whether 85 % of the limit are used. Raises BusUnavailable."""
        now = asyncio.get_running_loop().time()
        if self._bus.settings.store_max_bytes and now - self._looked_at >= LOOK_S:
            self._looked_at = now
            self._is_nearly_full = await fullness(self._bus) >= NEARLY_FULL
        return self._is_nearly_full


async def fullness(bus: Bus) -> float:
    """Which part of its limit the store has used, 0 where it has none. The limit is what the stream
    has, whatever this process was told. Raises BusUnavailable."""
    info = await api(bus, f"STREAM.INFO.{subjects.GENERATIONS_STREAM}")
    if "state" not in info:
        raise BusUnavailable(f"cannot look at the store: {info.get('error')}")
    limit = int(info["config"].get("max_bytes") or -1)
    return int(info["state"]["bytes"]) / limit if limit > 0 else 0.0
