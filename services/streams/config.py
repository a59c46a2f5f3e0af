"""Settings of the read side."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class StreamsSettings:
    """silence_s: seconds without an entry after which a reader asks the leader whether it missed one.
    linger_s: how long a stream without readers stays in memory for the next reader of this process.
    linger_max_bytes: of all such streams; the longest unread one goes first.
    api_keys: besides those of the database. admin_api_keys: those of operators. requires_key: nobody
    may ask without a key, though none is known."""

    silence_s: float = 1.0
    linger_s: float = 30.0
    linger_max_bytes: int = 64 * 1024 * 1024
    api_keys: tuple[str, ...] = ()
    admin_api_keys: tuple[str, ...] = ()
    requires_key: bool = False
    host: str = "127.0.0.1"
    port: int = 8081
