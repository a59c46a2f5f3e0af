"""Processes, logs, broker and control plane."""

from services.cli.table.row import (
    ARCHIVE,
    BUS,
    ENGINE,
    GATEWAY,
    LAUNCHER,
    MODELS,
    ON_OFF_AUTO,
    Flag,
    flag,
)

_LOGS = f"{LAUNCHER} {ENGINE}"

# fmt: off
PROCESS_FLAGS: tuple[Flag, ...] = (
    flag("--data-dir", "LLAMATAPE_DATA_DIR", "text", "", LAUNCHER, "where logs, database and broker keep their files (default: $XDG_DATA_HOME/llamatape)", metavar="DIR"),
    flag("-v --log-verbose --verbose", "LLAMATAPE_VERBOSE", "bool", False, _LOGS, "log everything, broker and engine too"),
    flag("-lv --verbosity --log-verbosity", "LLAMA_ARG_LOG_VERBOSITY", "int", 3, _LOGS, "how much to log: 1 errors, 2 warnings, 3 what happens, 4 and more everything", low=0),
    flag("--log-disable", "LLAMATAPE_LOG_DISABLE", "bool", False, _LOGS, "log nothing"),
    flag("--log-file", "LLAMA_ARG_LOG_FILE", "text", "", _LOGS, "file to append the log to, besides the terminal", metavar="FILE"),
    flag("--log-jsonl --log-json / --no-log-jsonl", "LLAMA_ARG_LOG_JSONL", "bool", False, _LOGS, "log lines are JSON objects"),
    flag("--log-colors", "LLAMA_ARG_LOG_COLORS", "choice", "auto", _LOGS, "colours in the log, auto for a terminal only", choices=ON_OFF_AUTO),
    flag("--log-prefix / --no-log-prefix", "LLAMA_ARG_LOG_PREFIX", "bool", True, _LOGS, "log lines begin with level and process"),
    flag("--log-timestamps / --no-log-timestamps", "LLAMA_ARG_LOG_TIMESTAMPS", "bool", True, _LOGS, "log lines begin with the time"),
    flag("--log-prompts-dir", "LLAMATAPE_LOG_PROMPTS_DIR", "text", "", f"{GATEWAY} {ENGINE}", "folder to write prompts to", metavar="DIR", is_built=False),
    flag("--host-id", "LLAMATAPE_HOST_ID", "text", "", LAUNCHER, "name of this machine on the bus (default: random)"),

    flag("--drain-grace", "LLAMATAPE_DRAIN_GRACE_S", "float", None, f"{LAUNCHER} {ENGINE} {GATEWAY}", "seconds that running work has to end after SIGTERM; engines then hand over the rest (default: 0 with `serve`, else 5)", low=0, high=3600),

    flag("--nats-url --broker-url", "LLAMATAPE_NATS_URL", "text", "", BUS, "broker to use, comma-separated servers (default: `serve` starts its own, others 127.0.0.1:4222)", metavar="URL", is_secret=True),
    flag("--broker-token", "LLAMATAPE_NATS_TOKEN", "text", "", BUS, "secret of the broker", metavar="TOKEN", is_secret=True),
    flag("--replicas", "LLAMATAPE_REPLICAS", "int", 1, BUS, "copies of every stream", low=1, high=5),
    flag("--lease", "LLAMATAPE_LEASE_S", "float", None, BUS, "seconds without a sign of life after which another engine takes over (default: 5, with --replicas 15)", low=1, high=3600),
    flag("--durable", "LLAMATAPE_DURABLE", "bool", False, f"{BUS} {MODELS}", "what was acknowledged survives a power cut: the broker that `serve` starts, and SQLite, wait for the disk each time"),
    flag("--store-max-bytes", "LLAMATAPE_STORE_MAX_BYTES", "int", 0, BUS, "bytes of all logs, 0 for what the disk has", low=0, high=2**62),

    flag("--database-url", "LLAMATAPE_DATABASE_URL", "text", "", MODELS, "SQLAlchemy URL with an asynchronous driver (default: SQLite under the data directory)", metavar="URL", is_secret=True),
    flag("--archive / --no-archive", "LLAMATAPE_ARCHIVE", "bool", True, ARCHIVE, "copy ended generations into the database and take them off the broker after --hot-window"),
    flag("--hot-window", "LLAMATAPE_HOT_WINDOW_S", "int", 3600, ARCHIVE, "seconds that an ended generation stays on the broker; it is read from the archive afterwards", low=1),
    flag("--archive-retention", "LLAMATAPE_ARCHIVE_RETENTION_DAYS", "int", 0, ARCHIVE, "days that the archive keeps a generation, 0 for ever", metavar="DAYS", low=0, high=100_000),
    flag("--archive-sweep", "LLAMATAPE_ARCHIVE_SWEEP_S", "float", 30, ARCHIVE, "seconds between two looks at all generations on the broker", low=0.1, high=86_400),
    flag("--engines", "LLAMATAPE_ENGINES", "int", 1, MODELS, "engines to run for the model", low=1, high=64),
)
# fmt: on
