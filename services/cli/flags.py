"""The table of flags: one line each, for the parser, the help text and the children's environment.

The first ones are llama-server's, under its names, aliases, variables and defaults; a flag for which
it has no variable gets one of ours, because children receive every flag through the environment.
"""

from dataclasses import dataclass
from math import inf
from typing import Literal

Value = bool | int | float | str | tuple[str, ...] | None
Values = dict[str, Value]
"""By `Flag.key`; None means that the service chooses."""

Kind = Literal["int", "float", "text", "list", "bool"]


@dataclass(frozen=True, kw_only=True)
class Flag:
    """One flag. names, negatives: spellings, the last of `names` gives the key.

    env: the variable that sets it. low, high: bounds of a number, inclusive. metavar: empty for a
    bool. services: who uses it, the first is its section of the help text. is_secret: never shown,
    never in an argument vector of ours.
    """

    names: tuple[str, ...]
    negatives: tuple[str, ...]
    env: str
    kind: Kind
    default: Value
    help: str
    services: tuple[str, ...]
    metavar: str
    low: float
    high: float
    is_secret: bool
    choices: tuple[str, ...]

    @property
    def key(self) -> str:
        return self.names[-1].lstrip("-").replace("-", "_")

    @property
    def negative_env(self) -> str:
        """llama-server's second variable of an on/off pair; empty where there is none."""
        return self.env.replace("LLAMA_ARG_", "LLAMA_ARG_NO_") if self.negatives else ""


ENGINE, GATEWAY, MODELS, BUS, LAUNCHER = "engine", "gateway", "models", "bus", "launcher"
MODEL = "model"
"""Flags that say what is served: the engine, the gateway and the models service need them."""

SECTIONS = {
    MODEL: "Model",
    ENGINE: "Engine (defaults of sampling apply where a request says nothing)",
    GATEWAY: "HTTP",
    LAUNCHER: "Process",
    BUS: "Broker",
    MODELS: "Control plane",
}


def _flag(
    names: str,
    env: str,
    kind: Kind,
    default: Value,
    services: str,
    help: str,  # noqa: A002
    *,
    metavar: str = "",
    low: float = -inf,
    high: float = inf,
    is_secret: bool = False,
    choices: tuple[str, ...] = (),
) -> Flag:
    spellings = names.split()
    return Flag(
        names=tuple(name for name in spellings if not name.startswith("--no-")),
        negatives=tuple(name for name in spellings if name.startswith("--no-")),
        env=env,
        kind=kind,
        default=default,
        help=help,
        services=tuple(services.split()),
        metavar=metavar or ("" if kind == "bool" else "N" if kind in ("int", "float") else "TEXT"),
        low=low,
        high=high,
        is_secret=is_secret,
        choices=choices,
    )


_I32, _U32, _U16 = 2**31 - 1, 2**32 - 1, 2**16 - 1

# fmt: off
FLAGS: tuple[Flag, ...] = (
    _flag("-m --model", "LLAMA_ARG_MODEL", "text", None, MODEL, "GGUF file to serve", metavar="FILE"),
    _flag("-a --alias", "LLAMA_ARG_ALIAS", "list", (), MODEL, "names of the model in the API, comma-separated (default: the file's name)"),
    _flag("--tags", "LLAMA_ARG_TAGS", "list", (), MODEL, "tags of the model, comma-separated, for information"),

    _flag("-c --ctx-size", "LLAMA_ARG_CTX_SIZE", "int", 0, ENGINE, "tokens of context over all slots, 0 for the model's own", low=0, high=_I32),
    _flag("-np --parallel", "LLAMA_ARG_N_PARALLEL", "int", -1, ENGINE, "slots, that is requests decoded at once, -1 chooses", low=-1, high=256),
    _flag("-b --batch-size", "LLAMA_ARG_BATCH", "int", 2048, ENGINE, "tokens in one decode call at most", low=1, high=_I32),
    _flag("-ub --ubatch-size", "LLAMA_ARG_UBATCH", "int", 512, ENGINE, "tokens in one graph at most", low=1, high=_I32),
    _flag("-t --threads", "LLAMA_ARG_THREADS", "int", None, ENGINE, "threads that decode, 0 or less for all logical cores (default: one per physical core)", low=-_I32, high=1024),
    _flag("-tb --threads-batch", "LLAMATAPE_THREADS_BATCH", "int", None, ENGINE, "threads that prefill (default: as --threads)", low=-_I32, high=1024),
    _flag("--warmup --no-warmup", "LLAMATAPE_WARMUP", "bool", True, ENGINE, "decode once before the first request"),
    _flag("--jinja --no-jinja", "LLAMA_ARG_JINJA", "bool", True, ENGINE, "render chat templates with Jinja"),
    _flag("--chat-template", "LLAMA_ARG_CHAT_TEMPLATE", "text", "", ENGINE, "Jinja chat template instead of the model's", metavar="TEMPLATE"),
    _flag("--chat-template-file", "LLAMA_ARG_CHAT_TEMPLATE_FILE", "text", "", ENGINE, "file with a Jinja chat template", metavar="FILE"),
    _flag("-n --predict --n-predict", "LLAMA_ARG_N_PREDICT", "int", -1, ENGINE, "tokens to generate at most, -1 for no limit", low=-1, high=_I32),
    _flag("-s --seed", "LLAMATAPE_SEED", "int", -1, ENGINE, "seed of the random source, -1 for a random one", low=-1, high=_U32),
    _flag("--temp --temperature", "LLAMA_ARG_TEMPERATURE", "float", 0.8, ENGINE, "temperature, 0 for greedy", low=-1e9, high=1e9),
    _flag("--top-k", "LLAMA_ARG_TOP_K", "int", 40, ENGINE, "choose among this many, 0 disables", low=-_I32, high=_I32),
    _flag("--top-p", "LLAMA_ARG_TOP_P", "float", 0.95, ENGINE, "choose among this much probability, 1 disables", low=-1e9, high=1e9),
    _flag("--min-p", "LLAMA_ARG_MIN_P", "float", 0.05, ENGINE, "least probability relative to the best, 0 disables", low=-1e9, high=1e9),
    _flag("--repeat-last-n", "LLAMATAPE_REPEAT_LAST_N", "int", 64, ENGINE, "tokens that the penalties look back, 0 disables", low=0, high=_I32),
    _flag("--repeat-penalty", "LLAMA_ARG_REPEAT_PENALTY", "float", 1.0, ENGINE, "penalty of repeated tokens, 1 disables", low=1e-30, high=1e30),
    _flag("--presence-penalty", "LLAMA_ARG_PRESENCE_PENALTY", "float", 0.0, ENGINE, "penalty of tokens that were there, 0 disables", low=-1e9, high=1e9),
    _flag("--frequency-penalty", "LLAMA_ARG_FREQUENCY_PENALTY", "float", 0.0, ENGINE, "penalty per time that a token was there, 0 disables", low=-1e9, high=1e9),
    _flag("--engine-id", "LLAMATAPE_ENGINE_ID", "text", "", ENGINE, "name of this engine on the bus (default: random)"),
    _flag("--ordinal", "LLAMATAPE_ENGINE_ORDINAL", "int", 0, ENGINE, "number of this engine among those of its model", low=0, high=9999),

    _flag("--host", "LLAMA_ARG_HOST", "list", ("127.0.0.1",), GATEWAY, "addresses to listen on, comma-separated, or paths of UNIX sockets ending in .sock"),
    _flag("--port", "LLAMA_ARG_PORT", "int", None, GATEWAY, "port to listen on, 0 for any (default: 8080; streams alone: 8081)", metavar="PORT", low=0, high=_U16),
    _flag("--api-key", "LLAMA_API_KEY", "list", (), GATEWAY, "keys that clients may use, comma-separated (default: everybody may ask)", metavar="KEY", is_secret=True),
    _flag("--api-key-file", "LLAMA_ARG_API_KEY_FILE", "text", "", GATEWAY, "file with one key a line; # begins a comment", metavar="FILE"),
    _flag("--slots --no-slots", "LLAMA_ARG_ENDPOINT_SLOTS", "bool", True, GATEWAY, "answer GET /slots"),
    _flag("-to --timeout", "LLAMA_ARG_TIMEOUT", "int", 3600, GATEWAY, "seconds after which a request fails", low=1, high=_I32),
    _flag("--sse-ping-interval", "LLAMA_ARG_SSE_PING_INTERVAL", "int", 30, f"{GATEWAY} {ENGINE}", "seconds of silence before a ping on event streams, -1 disables", low=-1, high=_I32),

    _flag("--data-dir", "LLAMATAPE_DATA_DIR", "text", "", LAUNCHER, "where logs, database and broker keep their files (default: $XDG_DATA_HOME/llamatape)", metavar="DIR"),
    _flag("-v --log-verbose --verbose", "LLAMATAPE_VERBOSE", "bool", False, f"{LAUNCHER} {ENGINE}", "log everything, broker and engine too"),
    _flag("--log-json", "LLAMATAPE_LOG_JSON", "bool", False, f"{LAUNCHER} {ENGINE}", "log lines are JSON objects"),
    _flag("--host-id", "LLAMATAPE_HOST_ID", "text", "", LAUNCHER, "name of this machine on the bus (default: random)"),

    _flag("--nats-url --broker-url", "LLAMATAPE_NATS_URL", "text", "", BUS, "broker to use, comma-separated servers (default: `serve` starts its own, others 127.0.0.1:4222)", metavar="URL", is_secret=True),
    _flag("--broker-token", "LLAMATAPE_NATS_TOKEN", "text", "", BUS, "secret of the broker", metavar="TOKEN", is_secret=True),
    _flag("--replicas", "LLAMATAPE_REPLICAS", "int", 1, BUS, "copies of every stream", low=1, high=5),
    _flag("--lease", "LLAMATAPE_LEASE_S", "float", 5.0, BUS, "seconds without a sign of life after which another engine takes over", low=1, high=3600),
    _flag("--store-max-bytes", "LLAMATAPE_STORE_MAX_BYTES", "int", 0, BUS, "bytes of all logs, 0 for what the disk has", low=0, high=2**62),

    _flag("--database-url", "LLAMATAPE_DATABASE_URL", "text", "", MODELS, "SQLAlchemy URL with an asynchronous driver (default: SQLite under the data directory)", metavar="URL", is_secret=True),
    _flag("--engines", "LLAMATAPE_ENGINES", "int", 1, MODELS, "engines to run for the model", low=1, high=64),
)
# fmt: on
