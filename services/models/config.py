"""Settings of the control plane."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ModelsSettings:
    """database_url: SQLAlchemy's, asynchronous driver. host: engine host that gets the orders.

    model_name, model_key, model_path, aliases, tags: the one model that single-model mode loads at
    start. engine_env: flags of its engine as environment variables. n_engines: how many to run.
    receipts_path: file in which the launcher notes downloads, empty for none.
    is_router: no model was named; those of hub (the cache of downloads) and of models_dir, each empty
    for none, are listed.
    """

    database_url: str = "sqlite+aiosqlite:///llamatape.db"
    host: str = ""
    model_name: str = ""
    model_key: str = ""
    model_path: str = ""
    aliases: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    engine_env: tuple[tuple[str, str], ...] = ()
    n_engines: int = 1
    receipts_path: str = ""
    is_router: bool = False
    hub: str = ""
    models_dir: str = ""
