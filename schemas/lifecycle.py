"""Who is alive, and where a model stands.

unloaded → loading → loaded → sleeping; downloading; failed. The database of the models service is
the truth; the bucket `models` mirrors what gateways need, the bucket `presence` says who breathes.
"""

from schemas.struct import Message

UNLOADED = "unloaded"
LOADING = "loading"
LOADED = "loaded"
SLEEPING = "sleeping"
DOWNLOADING = "downloading"
FAILED = "failed"


class EnginePresence(Message, frozen=True, kw_only=True):
    """One living engine, published every second or two into an expiring key.

    status: loading, loaded or failed. progress: 0–1 while loading. ordinal: number in
    `tasks.<model_key>.e<ordinal>`. error: why it failed, for people.
    """

    engine: str
    host: str
    model_key: str
    status: str
    progress: float = 0.0
    ordinal: int = 0
    n_slots: int = 0
    n_ctx: int = 0
    error: str = ""


class ModelStatus(Message, frozen=True, kw_only=True):
    """Value of the models bucket: one model as gateways need it. Times are Unix seconds.

    source: where it was found: cache, models_dir or registry; empty for a model that was named.
    """

    model_key: str
    name: str
    aliases: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    path: str = ""
    digest: str = ""
    status: str
    progress: float = 0.0
    error: str = ""
    created_at_s: int = 0
    changed_at_s: int = 0
    source: str = ""


class HostPresence(Message, frozen=True, kw_only=True):
    """One living engine host, published like an engine. engines: ids of those that it keeps running."""

    host: str
    engines: tuple[str, ...] = ()
