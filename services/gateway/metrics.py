"""GET /metrics: asks every engine, adds what this process knows, and shows it all as one."""

from collections.abc import Mapping
from datetime import UTC, datetime

from starlette.requests import Request
from starlette.responses import Response

from schemas import subjects
from schemas.errors import RequestError
from schemas.rpc import ArchiveDescription, DescribeArchive, MetricsDescription
from services.bus.connection import Bus
from services.bus.ended import backlog
from services.bus.errors import BusError
from services.bus.rpc import ask
from services.bus.tasks import queue_depth
from services.edge.cased import Cased
from services.gateway.config import GatewaySettings
from services.gateway.engines import Engines
from services.gateway.metrics_text import CONTENT_TYPE, ArchiveFigures, Figures, render, windows
from services.streams.hub import Hub

ARCHIVE_TIMEOUT_S = 2.0
NO_METRICS = "This server does not support metrics endpoint. Start it with `--metrics`"
START_HEADER = Cased(b"Process-Start-Time-Unix")


class MetricsRoute:
    """The handler. Rates are over the time since this gateway was asked last (llama-server)."""

    def __init__(
        self,
        bus: Bus,
        engines: Engines,
        hub: Hub,
        refused: Mapping[str, int],
        settings: GatewaySettings,
    ) -> None:
        """refused: as in Figures; looked at for each answer."""
        self._refused = refused
        self._bus = bus
        self._engines = engines
        self._hub = hub
        self._settings = settings
        self._last: dict[str, MetricsDescription] = {}

    async def metrics(self, _request: Request) -> Response:
        """Raises RequestError where it is off, BusUnavailable while there is no broker."""
        if not self._settings.has_metrics:
            raise RequestError.not_supported(NO_METRICS)
        engines = await self._engines.metrics()
        n_queued = await queue_depth(self._bus, self._settings.model_key)
        window = windows(self._last, engines)
        self._last = {engine.engine: engine for engine in engines}
        figures = Figures(
            engines=engines,
            own=self._bus.counters.figures(),
            window=window,
            n_queued=n_queued,
            archive=await archive_figures(self._bus),
            n_subscribers=sum(tape.n_readers for tape in self._hub.running()),
            refused=self._refused,
        )
        started_at_s = min((engine.started_at_s for engine in engines), default=0)
        response = Response(render(figures), headers={"content-type": CONTENT_TYPE})
        response.raw_headers.append((START_HEADER, str(started_at_s).encode()))
        return response


async def archive_figures(bus: Bus) -> ArchiveFigures | None:
    """How far the archive is; None where there is none. Raises BusUnavailable."""
    waiting = await backlog(bus, datetime.now(UTC))
    if waiting is None:
        return None
    subject, question = subjects.ARCHIVE_RPC, DescribeArchive()
    try:
        said = await ask(bus, subject, question, ArchiveDescription, timeout_s=ARCHIVE_TIMEOUT_S)
        n_archived = said.n_archived
    except (BusError, RequestError):
        n_archived = None
    return ArchiveFigures(n_archived=n_archived, n_waiting=waiting.n, lag_s=waiting.lag_s)
