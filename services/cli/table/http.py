"""The HTTP API."""

from services.cli.table.row import ENGINE, GATEWAY, I32, U16, Flag, flag

CORS_METHODS = "GET, POST, DELETE, OPTIONS"

# fmt: off
HTTP_FLAGS: tuple[Flag, ...] = (
    flag("--host", "LLAMA_ARG_HOST", "list", ("127.0.0.1",), GATEWAY, "addresses to listen on, comma-separated, or paths of UNIX sockets ending in .sock"),
    flag("--port", "LLAMA_ARG_PORT", "int", None, GATEWAY, "port to listen on, 0 for any (default: 8080; streams alone: 8081)", metavar="PORT", low=0, high=U16),
    flag("--reuse-port", "LLAMA_ARG_REUSE_PORT", "bool", False, GATEWAY, "let others listen on the same port too"),
    flag("--api-prefix", "LLAMA_ARG_API_PREFIX", "text", "", GATEWAY, "path that every route begins with, without a slash at its end", metavar="PREFIX"),
    flag("--path", "LLAMA_ARG_STATIC_PATH", "text", "", GATEWAY, "folder with files to serve", metavar="DIR"),
    flag("--media-path", "LLAMATAPE_MEDIA_PATH", "text", "", GATEWAY, "folder of media that requests may name (no effect: no model here sees pictures, so no file is ever read)", metavar="DIR"),
    flag("--webui-mcp-proxy --ui-mcp-proxy / --no-webui-mcp-proxy --no-ui-mcp-proxy", "LLAMA_ARG_UI_MCP_PROXY", "bool", False, GATEWAY, "let pages reach other servers through /cors-proxy; not where you do not trust who asks"),
    flag("--api-key", "LLAMA_API_KEY", "list", (), GATEWAY, "keys that clients may use, comma-separated (default: everybody may ask)", metavar="KEY", is_secret=True),
    flag("--api-key-file", "LLAMA_ARG_API_KEY_FILE", "text", "", GATEWAY, "file with one key a line; # begins a comment", metavar="FILE"),
    flag("--admin-api-key", "LLAMATAPE_ADMIN_API_KEY", "list", (), GATEWAY, "keys of operators, comma-separated: for /v1/audit, which nobody may ask without one", metavar="KEY", is_secret=True),
    flag("--admin-api-key-file", "LLAMATAPE_ADMIN_API_KEY_FILE", "text", "", GATEWAY, "file with one key of an operator a line; # begins a comment", metavar="FILE"),
    flag("--record-content", "LLAMATAPE_RECORD_CONTENT", "choice", "full", GATEWAY, "what the archive keeps of prompts and answers, where a key says nothing: all, their hashes, nothing", choices=("full", "hashes", "none")),
    flag("--require-api-key / --no-require-api-key", "LLAMATAPE_REQUIRE_API_KEY", "bool", False, GATEWAY, "let nobody ask without a key, though none is known yet (else: as soon as there is one)"),
    flag("--ssl-key-file", "LLAMA_ARG_SSL_KEY_FILE", "text", "", GATEWAY, "private key for HTTPS (PEM)", metavar="FILE"),
    flag("--ssl-cert-file", "LLAMA_ARG_SSL_CERT_FILE", "text", "", GATEWAY, "certificate for HTTPS (PEM)", metavar="FILE"),
    flag("--cors-origins", "LLAMA_ARG_CORS_ORIGINS", "text", "*", GATEWAY, "origins that browsers may ask from, comma-separated; localhost for any port of this machine", metavar="ORIGINS"),
    flag("--cors-methods", "LLAMA_ARG_CORS_METHODS", "text", CORS_METHODS, GATEWAY, "methods that they may use", metavar="METHODS"),
    flag("--cors-headers", "LLAMA_ARG_CORS_HEADERS", "text", "*", GATEWAY, "headers that they may send", metavar="HEADERS"),
    flag("--cors-credentials / --no-cors-credentials", "LLAMA_ARG_CORS_CREDENTIALS", "bool", True, GATEWAY, "let them send credentials"),
    flag("--slots / --no-slots", "LLAMA_ARG_ENDPOINT_SLOTS", "bool", True, GATEWAY, "answer GET /slots"),
    flag("--props", "LLAMA_ARG_ENDPOINT_PROPS", "bool", False, GATEWAY, "take POST /props"),
    flag("--metrics", "LLAMA_ARG_ENDPOINT_METRICS", "bool", False, GATEWAY, "answer GET /metrics"),
    flag("--webui --ui / --no-webui --no-ui", "LLAMA_ARG_UI", "bool", True, GATEWAY, "serve the web UI, where there is one"),
    flag("--webui-config --ui-config", "LLAMA_ARG_UI_CONFIG", "text", "", GATEWAY, "settings of the web UI, a JSON object", metavar="JSON"),
    flag("--webui-config-file --ui-config-file", "LLAMA_ARG_UI_CONFIG_FILE", "text", "", GATEWAY, "file with settings of the web UI", metavar="FILE"),
    flag("-to --timeout", "LLAMA_ARG_TIMEOUT", "int", 3600, GATEWAY, "seconds after which a request fails", low=1, high=I32),
    flag("--max-queue", "LLAMATAPE_MAX_QUEUE", "int", 1024, GATEWAY, "requests that may wait for a slot; more are answered with 503 (0: any number)", low=0, high=1_000_000),
    flag("--idempotency-window", "LLAMATAPE_IDEMPOTENCY_WINDOW_S", "int", 1800, GATEWAY, "seconds for which an Idempotency-Key gives the same answer; below --hot-window", low=1, high=I32),
    flag("--sse-ping-interval", "LLAMA_ARG_SSE_PING_INTERVAL", "int", 30, f"{GATEWAY} {ENGINE}", "seconds of silence before a ping on event streams, -1 disables", low=-1, high=I32),
    flag("--threads-http", "LLAMA_ARG_THREADS_HTTP", "int", -1, GATEWAY, "threads for HTTP (no effect: one event loop serves all connections)", low=-1, high=I32),
)
# fmt: on
