"""Settings of a gateway."""

from dataclasses import dataclass, field

from services.edge.cors_policy import CorsPolicy


@dataclass(frozen=True, kw_only=True)
class GatewaySettings:
    """What one gateway process serves.

    api_keys: accepted keys, besides those of the database. admin_api_keys: those of operators.
    requires_key: nobody may ask without one, though none is known. model_name, aliases, tags: the one
    model of single-model mode. deadline_s: seconds after which a request fails, running or not.
    has_slots, has_metrics: whether GET /slots and GET /metrics answer. has_slot_files: whether slots
    can be saved, restored and erased. max_body_bytes: of a request.
    model_path: as shown by /props. api_prefix: what every path begins with, no slash at its end.
    static_dir: folder of files to serve, empty for none. has_page: whether our own page is served
    where there is no such folder. has_cors_proxy: whether pages reach other servers through
    /cors-proxy. ui_settings: JSON object, shown by /props. is_router: no model was named, requests name
    theirs.
    record_content: full, hashes or none: what the archive keeps of a caller that says nothing else.
    predict_route, predict_health_route: Google Cloud's paths, empty for none.
    max_queue: tasks that may wait for an engine, 0 for any number. idempotency_window_s: seconds for
    which an idempotency key stands for the same generation.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    api_keys: tuple[str, ...] = ()
    admin_api_keys: tuple[str, ...] = ()
    requires_key: bool = False
    model_key: str = ""
    model_name: str = ""
    aliases: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    model_path: str = ""
    deadline_s: float = 3600.0
    sse_ping_interval_s: int = 30
    has_slots: bool = True
    has_metrics: bool = False
    has_slot_files: bool = False
    has_props_post: bool = False
    record_content: str = "full"
    cors: CorsPolicy = field(default_factory=CorsPolicy)
    api_prefix: str = ""
    static_dir: str = ""
    has_page: bool = False
    has_cors_proxy: bool = False
    is_router: bool = False
    ui_settings: str = "{}"
    predict_route: str = ""
    predict_health_route: str = ""
    max_body_bytes: int = 64 * 1024 * 1024
    prepare_timeout_s: float = 30.0
    max_queue: int = 1024
    idempotency_window_s: int = 1800
