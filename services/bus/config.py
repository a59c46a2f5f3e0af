"""Settings of the bus, shared by every service."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class BusSettings:
    """How to reach NATS and how its streams are laid out.

    url: of the broker, comma-separated for several. token: its secret, empty for none.
    n_replicas: of every stream and bucket (1 or 3). lease_s: seconds without a sign of life after
    which another engine may take a task. store_max_bytes: of the generations' log, 0 for no limit.
    """

    url: str = "nats://127.0.0.1:4222"
    token: str = ""
    n_replicas: int = 1
    lease_s: float = 5.0
    store_max_bytes: int = 0
