"""How full the store of logs is, so that nothing new is let in while what runs can still end."""

import asyncio

from schemas import subjects
from services.bus.connection import Bus

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
        limit = self._bus.settings.store_max_bytes
        now = asyncio.get_running_loop().time()
        if limit and now - self._looked_at >= LOOK_S:
            self._looked_at = now
            info = await self._bus.api(f"STREAM.INFO.{subjects.GENERATIONS_STREAM}")
            self._is_nearly_full = int(info["state"]["bytes"]) >= NEARLY_FULL * limit
        return self._is_nearly_full
