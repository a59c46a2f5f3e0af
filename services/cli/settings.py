"""Values of the flags to the settings of each service. Reads the files that flags name, nothing else."""

import os
from pathlib import Path
from typing import TypeVar, cast

from schemas import subjects
from schemas.ids import new_short_id
from schemas.params import Limits, Output, Params, Sampling
from services.bus.config import BusSettings
from services.cli.errors import UsageError
from services.cli.flags import ENGINE, MODEL, Values
from services.cli.parse import values_to_env
from services.engine.config import EngineSettings
from services.gateway.config import GatewaySettings
from services.models.config import ModelsSettings
from services.streams.config import StreamsSettings

T = TypeVar("T")
AUTO_SLOTS = 4
DATABASE_NAME = "llamatape.db"


def _get(values: Values, key: str, kind: type[T]) -> T:
    return cast(T, values[key])


def _list(values: Values, key: str) -> tuple[str, ...]:
    return cast("tuple[str, ...]", values[key])


def data_dir(values: Values) -> Path:
    """Where this machine's logs, database and broker live; absolute, not created here."""
    if given := _get(values, "data_dir", str):
        return Path(given).expanduser().absolute()
    base = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return (Path(base).expanduser() / "llamatape").absolute()


def model_path(values: Values) -> str:
    """The file as the user named it. Raises UsageError where none was named."""
    if path := values["model"]:
        return str(path)
    raise UsageError("no model: name a GGUF file with -m FILE")


def aliases(values: Values) -> tuple[str, ...]:
    """Sorted and distinct, as llama-server keeps them: the first one is the model's name."""
    return tuple(sorted(set(_list(values, "alias"))))


def model_name(values: Values) -> str:
    return next(iter(aliases(values)), "") or Path(model_path(values)).name


def api_keys(values: Values) -> tuple[str, ...]:
    return _list(values, "api_key") + _keys_of_file(_get(values, "api_key_file", str))


def _keys_of_file(path: str) -> tuple[str, ...]:
    lines = _text_of("--api-key-file", path).splitlines() if path else []
    return tuple(line.strip() for line in lines if line.strip() and not line.startswith("#"))


def _text_of(flag: str, path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise UsageError(f"{flag}: cannot read {path}: {reason}") from None


def bus_settings(values: Values) -> BusSettings:
    return BusSettings(
        url=_get(values, "broker_url", str) or BusSettings.url,
        token=_get(values, "broker_token", str),
        n_replicas=_get(values, "replicas", int),
        lease_s=_get(values, "lease", float),
        store_max_bytes=_get(values, "store_max_bytes", int),
    )


def gateway_settings(values: Values) -> GatewaySettings:
    name = model_name(values)
    return GatewaySettings(
        host=",".join(_list(values, "host")),
        port=port(values, GatewaySettings.port),
        api_keys=api_keys(values),
        model_key=subjects.model_key(name),
        model_name=name,
        aliases=aliases(values),
        tags=tags(values),
        model_path=model_path(values),
        deadline_s=_get(values, "timeout", int),
        sse_ping_interval_s=_get(values, "sse_ping_interval", int),
        has_slots=_get(values, "slots", bool),
    )


def port(values: Values, default: int) -> int:
    given = values["port"]
    return default if given is None else int(cast(int, given))


def tags(values: Values) -> tuple[str, ...]:
    return tuple(sorted(set(_list(values, "tags"))))


def streams_settings(values: Values) -> StreamsSettings:
    return StreamsSettings(
        api_keys=api_keys(values),
        host=",".join(_list(values, "host")),
        port=port(values, StreamsSettings.port),
    )


def database_url(values: Values) -> str:
    url = _get(values, "database_url", str)
    return url or f"sqlite+aiosqlite:///{data_dir(values) / DATABASE_NAME}"


def models_settings(values: Values) -> ModelsSettings:
    name = model_name(values)
    return ModelsSettings(
        database_url=database_url(values),
        host=_get(values, "host_id", str),
        model_name=name,
        model_key=subjects.model_key(name),
        model_path=os.path.abspath(model_path(values)),
        aliases=aliases(values),
        tags=tags(values),
        engine_env=tuple(values_to_env(values, [MODEL, ENGINE]).items()),
        n_engines=_get(values, "engines", int),
    )


def engine_settings(values: Values) -> EngineSettings:
    name, n_threads = model_name(values), _threads(values, "threads", 0)
    return EngineSettings(
        engine=_get(values, "engine_id", str) or new_short_id("e"),
        host=_get(values, "host_id", str),
        model_key=subjects.model_key(name),
        model_name=name,
        model_path=model_path(values),
        aliases=aliases(values),
        ordinal=_get(values, "ordinal", int),
        n_ctx=_get(values, "ctx_size", int),
        n_batch=_get(values, "batch_size", int),
        n_ubatch=_get(values, "ubatch_size", int),
        n_threads=n_threads,
        n_threads_batch=_threads(values, "threads_batch", n_threads),
        n_slots=_slots(values),
        is_warmup=_get(values, "warmup", bool),
        is_jinja=_get(values, "jinja", bool),
        template=template(values),
        is_verbose=_get(values, "verbose", bool),
        defaults=default_params(values),
    )


def _threads(values: Values, key: str, default: int) -> int:
    given = values[key]
    if given is None:
        return default
    n_threads = int(cast(int, given))
    return n_threads if n_threads > 0 else os.cpu_count() or 1


def _slots(values: Values) -> int:
    n_slots = _get(values, "parallel", int)
    if n_slots == 0:
        raise UsageError("--parallel: 0 slots serve nobody; -1 chooses")
    return n_slots if n_slots > 0 else AUTO_SLOTS


def template(values: Values) -> str:
    """The chat template that replaces the model's; empty for none."""
    path = _get(values, "chat_template_file", str)
    return _text_of("--chat-template-file", path) if path else _get(values, "chat_template", str)


def default_params(values: Values) -> Params:
    """Parameters of a request that sets none."""
    return Params(
        sampling=Sampling(
            seed=_get(values, "seed", int) & 0xFFFFFFFF,
            temperature=max(_get(values, "temperature", float), 0.0),
            top_k=_get(values, "top_k", int),
            top_p=_get(values, "top_p", float),
            min_p=_get(values, "min_p", float),
            repeat_last_n=_get(values, "repeat_last_n", int),
            repeat_penalty=_get(values, "repeat_penalty", float),
            presence_penalty=_get(values, "presence_penalty", float),
            frequency_penalty=_get(values, "frequency_penalty", float),
        ),
        limits=Limits(n_predict=_get(values, "n_predict", int)),
        output=Output(sse_ping_interval=_get(values, "sse_ping_interval", int)),
    )


def check(values: Values) -> None:
    """Build everything once, so that a bad value ends the start and not a child. Raises UsageError."""
    bus_settings(values)
    gateway_settings(values)
    streams_settings(values)
    models_settings(values)
    engine_settings(values)
