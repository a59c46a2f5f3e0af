"""Values of the flags to the settings of each service. Reads the files that flags name, nothing else."""

import json
import os
from pathlib import Path
from typing import cast
from urllib.parse import unquote, urlsplit

from schemas import subjects
from schemas.ids import new_short_id
from services.bus.config import BusSettings
from services.cli.cache_options import caching, slot_save_path
from services.cli.defaults import default_params, template_kwargs
from services.cli.errors import UsageError
from services.cli.flags import ENGINE, MODEL, SAMPLING, Values
from services.cli.gcp import gcp_container
from services.cli.llama_options import context_options, cpus, model_options
from services.cli.parse import values_to_env
from services.cli.values import get, json_object, text_of_file, text_or_file, texts
from services.edge.cors_policy import CorsPolicy
from services.engine.config import EngineSettings
from services.engine.errors import BadSimulation
from services.engine.simulation import Simulation, parse_simulation
from services.gateway.config import GatewaySettings
from services.models.config import ModelsSettings
from services.models.downloads.cache import cache_dirs
from services.streams.archive.config import ArchiveSettings
from services.streams.config import StreamsSettings

AUTO_SLOTS = 4
DEBUG = 4
"""llama.cpp's own log is shown above this verbosity."""
SIMULATED = "simulated"
"""Name of a model that is none, where the user gives no other."""
DATABASE_NAME = "llamatape.db"
REPLICATED_LEASE_S = 15.0
NO_MODEL = "no model: name a GGUF file with -m FILE, or a repository with -hf USER/MODEL"
DRAIN_GRACE_S = 5.0
DAY_S = 86_400
RECEIPTS_NAME = "downloads.jsonl"


def data_dir(values: Values) -> Path:
    """Where this machine's logs, database and broker live; absolute, not created here."""
    if given := get(values, "data_dir", str):
        return Path(given).expanduser().absolute()
    base = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return (Path(base).expanduser() / "llamatape").absolute()


def model_path(values: Values) -> str:
    """The file as the user named it. Raises UsageError where there is none.

    Empty where a simulation needs none, and where it is still to be downloaded.
    """
    if path := values["model"]:
        return str(path)
    if values["simulate"] or is_remote(values) or is_router(values):
        return ""
    raise UsageError(NO_MODEL)


def is_router(values: Values) -> bool:
    """Whether no model is named at all: then requests name theirs."""
    named = (values["model"], values["hf_repo"], values["model_url"], values["alias"])
    return not (any(named) or values["simulate"])


def is_remote(values: Values) -> bool:
    """Whether the model is to be found elsewhere: see services.cli.downloading."""
    return bool(values["hf_repo"] or values["model_url"])


def simulation(values: Values) -> Simulation | None:
    """What `--simulate` says, None without it. Raises UsageError."""
    text = get(values, "simulate", str)
    try:
        return parse_simulation(text) if text else None
    except BadSimulation as error:
        raise UsageError(f"--simulate: {error}") from None


def aliases(values: Values) -> tuple[str, ...]:
    """Sorted and distinct, as llama-server keeps them: the first one is the model's name."""
    return tuple(sorted(set(texts(values, "alias"))))


def model_name(values: Values) -> str:
    """The first alias, else the repository, else the file's name."""
    given = next(iter(aliases(values)), "") or get(values, "hf_repo", str)
    own = given or Path(model_path(values)).name or _url_name(values)
    return "" if is_router(values) else own or SIMULATED


def _url_name(values: Values) -> str:
    return unquote(urlsplit(get(values, "model_url", str)).path.rpartition("/")[2])


def api_keys(values: Values) -> tuple[str, ...]:
    return texts(values, "api_key") + _keys_of_file(values, "api_key_file")


def admin_keys(values: Values) -> tuple[str, ...]:
    return texts(values, "admin_api_key") + _keys_of_file(values, "admin_api_key_file")


def _keys_of_file(values: Values, key: str) -> tuple[str, ...]:
    path, flag = get(values, key, str), f"--{key.replace('_', '-')}"
    lines = text_of_file(flag, path).splitlines() if path else []
    return tuple(line.strip() for line in lines if line.strip() and not line.startswith("#"))


def bus_settings(values: Values) -> BusSettings:
    return BusSettings(
        url=get(values, "broker_url", str) or BusSettings.url,
        token=get(values, "broker_token", str),
        n_replicas=get(values, "replicas", int),
        lease_s=_lease(values),
        store_max_bytes=get(values, "store_max_bytes", int),
    )


def _lease(values: Values) -> float:
    """Elections among replicas take up to 9 s, in which no sign of life arrives."""
    if values["lease"] is not None:
        return get(values, "lease", float)
    return BusSettings.lease_s if get(values, "replicas", int) == 1 else REPLICATED_LEASE_S


def drain_grace(values: Values) -> float:
    """Seconds that running work has to end; for a service alone where nothing is said."""
    return DRAIN_GRACE_S if values["drain_grace"] is None else get(values, "drain_grace", float)


def gateway_settings(values: Values) -> GatewaySettings:
    name, gcp = model_name(values), gcp_container(os.environ)
    _folder(values, "media_path")
    return GatewaySettings(
        host=",".join(texts(values, "host")),
        port=port(values, GatewaySettings.port) if gcp is None else gcp.port,
        predict_route="" if gcp is None else gcp.predict,
        predict_health_route="" if gcp is None else gcp.health,
        api_keys=api_keys(values),
        admin_api_keys=admin_keys(values),
        requires_key=get(values, "require_api_key", bool),
        model_key=subjects.model_key(name),
        model_name=name,
        aliases=aliases(values),
        tags=tags(values),
        model_path=model_path(values),
        deadline_s=get(values, "timeout", int),
        sse_ping_interval_s=get(values, "sse_ping_interval", int),
        has_slots=get(values, "slots", bool),
        has_metrics=get(values, "metrics", bool),
        has_slot_files=bool(slot_save_path(values)),
        has_props_post=get(values, "props", bool),
        record_content=get(values, "record_content", str),
        max_queue=get(values, "max_queue", int),
        idempotency_window_s=_idempotency_window(values),
        cors=_cors(values),
        api_prefix=_prefix(get(values, "api_prefix", str)),
        static_dir=_static_dir(values),
        is_router=is_router(values),
        has_cors_proxy=get(values, "ui_mcp_proxy", bool),
        has_page=get(values, "ui", bool) and not get(values, "path", str),
        ui_settings=_ui_settings(values),
    )


def _idempotency_window(values: Values) -> int:
    """Answers are found as long as their logs are on the broker for certain."""
    window_s, hot_s = get(values, "idempotency_window", int), values.get("hot_window")
    if isinstance(hot_s, int | float) and window_s >= hot_s:
        raise UsageError(f"--idempotency-window: {window_s} is not below --hot-window ({hot_s:g})")
    return window_s


def _cors(values: Values) -> CorsPolicy:
    return CorsPolicy(
        origins=_header(values, "cors_origins"),
        methods=_header(values, "cors_methods"),
        headers=_header(values, "cors_headers"),
        allows_credentials=get(values, "cors_credentials", bool),
    )


def _header(values: Values, key: str) -> str:
    text = get(values, key, str)
    if not (text.isascii() and text.isprintable()):
        raise UsageError(f"--{key.replace('_', '-')}: {text!r} cannot stand in a header")
    return text


def _prefix(text: str) -> str:
    prefix = text.rstrip("/")
    if prefix and not prefix.startswith("/"):
        raise UsageError(f"--api-prefix: {text!r} does not begin with a slash")
    return prefix


def _static_dir(values: Values) -> str:
    """Empty where no files are served, as with --no-ui (llama-server)."""
    path = _folder(values, "path")
    return path if get(values, "ui", bool) else ""


def _folder(values: Values, key: str) -> str:
    """Absolute; empty for none."""
    path = get(values, key, str)
    if path and not os.path.isdir(path):
        raise UsageError(f"--{key.replace('_', '-')}: {path} is not a folder")
    return _absolute(path)


def _ui_settings(values: Values) -> str:
    text = text_or_file(values, "ui_config", "ui_config_file")
    return json.dumps(json_object("--ui-config", text))


def tls_files(values: Values) -> tuple[str, str] | None:
    """Certificate and key; None where HTTP is spoken in the clear."""
    cert, key = get(values, "ssl_cert_file", str), get(values, "ssl_key_file", str)
    if bool(cert) != bool(key):
        raise UsageError("--ssl-cert-file and --ssl-key-file need each other")
    for flag, path in (("--ssl-cert-file", cert), ("--ssl-key-file", key)):
        if path:
            text_of_file(flag, path)
    return (cert, key) if cert else None


def port(values: Values, default: int) -> int:
    given = values["port"]
    return default if given is None else int(cast(int, given))


def tags(values: Values) -> tuple[str, ...]:
    return tuple(sorted(set(texts(values, "tags"))))


def streams_settings(values: Values) -> StreamsSettings:
    return StreamsSettings(
        api_keys=api_keys(values),
        admin_api_keys=admin_keys(values),
        requires_key=get(values, "require_api_key", bool),
        host=",".join(texts(values, "host")),
        port=port(values, StreamsSettings.port),
    )


def archive_settings(values: Values, *, is_embedded: bool) -> ArchiveSettings:
    """is_embedded: there is a database in any case, and it is ours to use. Raises UsageError."""
    hot_window_s, days = get(values, "hot_window", int), get(values, "archive_retention", int)
    if days and days * DAY_S <= hot_window_s:
        raise UsageError(f"--archive-retention: {days} days end before --hot-window does")
    url = database_url(values) if is_embedded else get(values, "database_url", str)
    return ArchiveSettings(
        database_url=url if get(values, "archive", bool) else "",
        hot_window_s=hot_window_s,
        idempotency_s=get(values, "idempotency_window", int),
        retention_days=days,
        sweep_s=get(values, "archive_sweep", float),
        is_durable=get(values, "durable", bool),
    )


def database_url(values: Values) -> str:
    url = get(values, "database_url", str)
    return url or f"sqlite+aiosqlite:///{data_dir(values) / DATABASE_NAME}"


def models_settings(values: Values) -> ModelsSettings:
    name = model_name(values)
    engine_values = values | {"hf_token": ""}  # no secret goes over the bus
    return ModelsSettings(
        database_url=database_url(values),
        host=get(values, "host_id", str),
        model_name=name,
        model_key=subjects.model_key(name),
        model_path=_absolute(model_path(values)),
        aliases=aliases(values),
        tags=tags(values),
        is_router=is_router(values),
        hub=str(cache_dirs(os.environ).hub),
        models_dir=_folder(values, "models_dir"),
        receipts_path=str(data_dir(values) / RECEIPTS_NAME) if values["data_dir"] else "",
        engine_env=tuple(values_to_env(engine_values, [MODEL, ENGINE, SAMPLING]).items()),
        n_engines=get(values, "engines", int),
    )


def _absolute(path: str) -> str:
    return os.path.abspath(path) if path else ""


def engine_settings(values: Values) -> EngineSettings:
    name, n_threads = model_name(values), _threads(values, "threads", 0)
    return EngineSettings(
        engine=get(values, "engine_id", str) or new_short_id("e"),
        host=get(values, "host_id", str),
        model_key=subjects.model_key(name),
        model_name=name,
        model_path=model_path(values),
        aliases=aliases(values),
        ordinal=get(values, "ordinal", int),
        n_ctx=get(values, "ctx_size", int),
        n_batch=get(values, "batch_size", int),
        n_ubatch=get(values, "ubatch_size", int),
        n_threads=n_threads,
        n_threads_batch=_threads(values, "threads_batch", n_threads),
        n_slots=_slots(values),
        is_warmup=get(values, "warmup", bool),
        is_jinja=get(values, "jinja", bool),
        template=template(values),
        is_verbose=get(values, "verbose", bool) or get(values, "log_verbosity", int) > DEBUG,
        defaults=default_params(values),
        failover_replay=get(values, "failover_replay", str),
        drain_grace_s=drain_grace(values),
        simulate=simulation(values),
        cpus=cpus(values),
        model=model_options(values),
        context=context_options(values),
        caching=caching(values),
        slot_save_path=slot_save_path(values),
        template_kwargs=template_kwargs(values),
        prefill_assistant=get(values, "prefill_assistant", bool),
        skips_parsing=get(values, "skip_chat_parsing", bool),
        is_suffix_first=get(values, "spm_infill", bool),
    )


def _threads(values: Values, key: str, default: int) -> int:
    given = values[key]
    if given is None:
        return default
    n_threads = int(cast(int, given))
    return n_threads if n_threads > 0 else os.cpu_count() or 1


def _slots(values: Values) -> int:
    n_slots = get(values, "parallel", int)
    if n_slots == 0:
        raise UsageError("--parallel: 0 slots serve nobody; -1 chooses")
    return n_slots if n_slots > 0 else AUTO_SLOTS


def template(values: Values) -> str:
    """The chat template that replaces the model's; empty for none."""
    return text_or_file(values, "chat_template", "chat_template_file")


def check(values: Values) -> None:
    """Build everything once, so that a bad value ends the start and not a child. Raises UsageError."""
    bus_settings(values)
    gateway_settings(values)
    tls_files(values)
    streams_settings(values)
    archive_settings(values, is_embedded=True)
    models_settings(values)
    engine_settings(values)
