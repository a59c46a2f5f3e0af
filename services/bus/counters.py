"""What one process did on the bus, in plain numbers: cheap to count, read by whoever shows metrics."""

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field

from schemas.events import Claimed, Event, Heartbeat
from schemas.rpc import BusFigures

BOUNDS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the latency buckets; one more takes the rest."""


@dataclass(slots=True)
class Counters:
    """Since the start of the connection. Event-loop thread only.

    appends: by latency bucket. n_fenced: appends that another writer was faster than. n_live: logs
    followed now. n_gaps: breaks in live logs that were filled from history. n_failovers: claims of
    logs that an earlier attempt had begun. n_pings: heartbeats written.
    """

    appends: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_S) + 1))
    append_s: float = 0.0
    n_fenced: int = 0
    n_live: int = 0
    n_gaps: int = 0
    n_failovers: int = 0
    n_pings: int = 0

    def on_append(self, events: Iterable[Event], seconds: float) -> None:
        """An entry was stored."""
        self.appends[bisect_left(BOUNDS_S, seconds)] += 1
        self.append_s += seconds
        for event in events:
            if isinstance(event, Heartbeat):
                self.n_pings += 1
            elif isinstance(event, Claimed) and event.attempt > 1:
                self.n_failovers += 1

    def figures(self) -> BusFigures:
        return BusFigures(
            append_bounds_s=BOUNDS_S,
            appends=tuple(self.appends),
            append_s=self.append_s,
            n_fenced=self.n_fenced,
            n_live=self.n_live,
            n_gaps=self.n_gaps,
            n_failovers=self.n_failovers,
            n_pings=self.n_pings,
        )
