"""Settings of the archive."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ArchiveSettings:
    """database_url: SQLAlchemy's, empty for no archive; logs then stay on the broker for ever.
    hot_window_s: seconds that an ended log stays on the broker. idempotency_s: that its fence does.
    retention_days: that the archive keeps it, 0 for ever. sweep_s: seconds between two looks at all
    logs. is_durable: SQLite waits for the disk."""

    database_url: str = ""
    hot_window_s: float = 3600.0
    idempotency_s: float = 0.0
    retention_days: int = 0
    sweep_s: float = 30.0
    is_durable: bool = False
