"""Flags of llama-server for what is not built yet. Each is refused, never ignored.

Whoever builds one of these drops `is_built=False` and moves the row to the flags of its kind.
"""

from services.cli.table.engine import CACHE_TYPES
from services.cli.table.row import ENGINE, GATEWAY, I32, MODELS, Flag, Kind, Value, flag

_FETCHES = "(downloads it)"
_N_MAX = "use --spec-draft-n-max or --spec-ngram-mod-n-max"


def _later(
    names: str,
    kind: Kind = "text",
    default: Value = "",
    help: str = "",  # noqa: A002
    *,
    env: str = "",
    services: str = ENGINE,
    choices: tuple[str, ...] = (),
    metavar: str = "",
) -> Flag:
    """A row of this file. env: ours, made of the last name, where llama-server has none."""
    last = names.partition(" / ")[0].split()[-1].lstrip("-")
    own = "LLAMATAPE_" + last.upper().replace("-", "_").replace(".", "_")
    low, high = (-I32, I32) if kind == "int" else (-1e9, 1e9)
    return flag(
        names,
        env or own,
        kind,
        default,
        services,
        help or last.replace("-", " "),
        metavar=metavar,
        low=low,
        high=high,
        choices=choices,
        is_built=False,
    )


def _gone(names: str, instead: str, env: str = "") -> Flag:
    own = "LLAMATAPE_" + names.split()[-1].lstrip("-").upper().replace("-", "_")
    return flag(names, env or own, "text", None, ENGINE, f"removed: {instead}", instead=instead)


# fmt: off
_ADAPTERS: tuple[Flag, ...] = (
    _later("--lora", "list", (), "LoRA adapters, comma-separated", metavar="FILE"),
    _later("--lora-scaled", "list", (), "LoRA adapters and their scales", metavar="FILE:SCALE"),
    _later("--lora-init-without-apply", "bool", False, "load adapters without applying them"),
    _later("--control-vector", "list", (), "control vectors, comma-separated", metavar="FILE"),
    _later("--control-vector-scaled", "list", (), "control vectors and their scales", metavar="FILE:SCALE"),
    _later("--control-vector-layer-range", help="layers that control vectors change", metavar="START END"),
)

_EMBEDDINGS: tuple[Flag, ...] = (
    _later("--embedding --embeddings", "bool", False, "serve embeddings only", env="LLAMA_ARG_EMBEDDINGS"),
    _later("--rerank --reranking", "bool", False, "serve reranking", env="LLAMA_ARG_RERANKING"),
    _later("--pooling", "choice", "", "how embeddings are pooled", env="LLAMA_ARG_POOLING", choices=("none", "mean", "cls", "last", "rank")),
    _later("--embd-normalize", "int", 2, "how embeddings are normalized"),
    _later("--embd-gemma-default", "bool", False, f"EmbeddingGemma {_FETCHES}"),
)

_MEDIA: tuple[Flag, ...] = (
    _later("-mm --mmproj", help="multimodal projector", env="LLAMA_ARG_MMPROJ", metavar="FILE"),
    _later("-mmu --mmproj-url", help="address of a multimodal projector", env="LLAMA_ARG_MMPROJ_URL", metavar="URL"),
    _later("--mmproj-auto / --no-mmproj --no-mmproj-auto", "bool", True, "use the projector of a repository", env="LLAMA_ARG_MMPROJ_AUTO"),
    _later("--mmproj-offload / --no-mmproj-offload", "bool", True, "keep the projector on the GPU", env="LLAMA_ARG_MMPROJ_OFFLOAD"),
    _later("-mmdev --mmproj-device", help="device of the projector", env="MTMD_BACKEND_DEVICE", metavar="DEVICE"),
    _later("--image-min-tokens", "int", -1, "tokens of an image at least", env="LLAMA_ARG_IMAGE_MIN_TOKENS"),
    _later("--image-max-tokens", "int", -1, "tokens of an image at most", env="LLAMA_ARG_IMAGE_MAX_TOKENS"),
    _later("--mtmd-batch-max-tokens", "int", 1024, "image tokens per batch at most", env="LLAMA_ARG_MTMD_BATCH_MAX_TOKENS"),
    _later("--video-fps", "float", 4.0, "frames per second of videos", env="LLAMA_ARG_VIDEO_FPS"),
    _later("--video-timestamp-interval", "int", 5000, "milliseconds between time stamps in videos", env="LLAMA_ARG_VIDEO_TIMESTAMP_INTERVAL"),
    _later("--video-ffmpeg-dir", help="folder of ffmpeg", env="LLAMA_ARG_VIDEO_FFMPEG_DIR", metavar="DIR"),
    _later("--vision-gemma-4b-default", "bool", False, f"Gemma 3 4B {_FETCHES}"),
    _later("--vision-gemma-12b-default", "bool", False, f"Gemma 3 12B {_FETCHES}"),
)

_ROUTER: tuple[Flag, ...] = (
    _later("--models-preset", help="INI file with models and their flags", env="LLAMA_ARG_MODELS_PRESET", services=MODELS, metavar="FILE"),
    _later("--models-max", "int", 4, "models loaded at once, 0 for no limit", env="LLAMA_ARG_MODELS_MAX", services=MODELS),
    _later("--models-autoload / --no-models-autoload", "bool", True, "load a model when a request names it", env="LLAMA_ARG_MODELS_AUTOLOAD", services=MODELS),
)

_TOOLS: tuple[Flag, ...] = (
    _later("--tools", "list", (), "built-in tools", env="LLAMA_ARG_TOOLS", services=GATEWAY, metavar="TOOL"),
    _later("--tools-runtime", help="where tools run", env="LLAMA_ARG_TOOLS_RUNTIME", services=GATEWAY, metavar="WHERE"),
    _later("--mcp-servers-config", help="file with MCP servers", env="LLAMA_ARG_MCP_SERVERS_CONFIG", services=GATEWAY, metavar="FILE"),
    _later("--mcp-servers-json", help="MCP servers", env="LLAMA_ARG_MCP_SERVERS_JSON", services=GATEWAY, metavar="JSON"),
    _later("-ag --agent / -no-ag --no-agent", "bool", False, "all tools and the proxy", env="LLAMA_ARG_AGENT", services=GATEWAY),
)

_INFILL: tuple[Flag, ...] = (
    _later("--fim-qwen-1.5b-default", "bool", False, f"Qwen 2.5 Coder 1.5B {_FETCHES}"),
    _later("--fim-qwen-3b-default", "bool", False, f"Qwen 2.5 Coder 3B {_FETCHES}"),
    _later("--fim-qwen-7b-default", "bool", False, f"Qwen 2.5 Coder 7B {_FETCHES}"),
    _later("--fim-qwen-7b-spec", "bool", False, f"Qwen 2.5 Coder 7B and a draft model {_FETCHES}"),
    _later("--fim-qwen-14b-spec", "bool", False, f"Qwen 2.5 Coder 14B and a draft model {_FETCHES}"),
    _later("--fim-qwen-30b-default", "bool", False, f"Qwen 3 Coder 30B {_FETCHES}"),
)

_DRAFT: tuple[Flag, ...] = (
    _later("--spec-draft-model -md --model-draft", help="draft model", env="LLAMA_ARG_SPEC_DRAFT_MODEL", metavar="FILE"),
    _later("--spec-draft-hf -hfd -hfrd --hf-repo-draft", help="draft model of a model hub", env="LLAMA_ARG_SPEC_DRAFT_HF_REPO", metavar="USER/MODEL[:QUANT]"),
    _later("--spec-type", "list", ("none",), "kinds of speculative decoding", env="LLAMA_ARG_SPEC_TYPE"),
    _later("--spec-default", "bool", False, "speculative decoding with default settings"),
    _later("--spec-draft-n-max", "int", 3, "tokens to draft at most", env="LLAMA_ARG_SPEC_DRAFT_N_MAX"),
    _later("--spec-draft-n-min", "int", 0, "tokens to draft at least", env="LLAMA_ARG_SPEC_DRAFT_N_MIN"),
    _later("--spec-draft-p-split --draft-p-split", "float", 0.1, env="LLAMA_ARG_SPEC_DRAFT_P_SPLIT"),
    _later("--spec-draft-p-min --draft-p-min", "float", 0.0, env="LLAMA_ARG_SPEC_DRAFT_P_MIN"),
    _later("--spec-synth-len", "float", 0.0, env="LLAMA_ARG_SPEC_SYNTH_LEN"),
    _later("--spec-synth-rates", "list", (), env="LLAMA_ARG_SPEC_SYNTH_RATES"),
    _later("--spec-draft-backend-sampling / --no-spec-draft-backend-sampling", "bool", True, env="LLAMA_ARG_SPEC_DRAFT_BACKEND_SAMPLING"),
    _later("--spec-draft-threads -td --threads-draft", "int", None),
    _later("--spec-draft-threads-batch -tbd --threads-batch-draft", "int", None),
    _later("--spec-draft-cpu-mask -Cd --cpu-mask-draft"),
    _later("--spec-draft-cpu-range -Crd --cpu-range-draft"),
    _later("--spec-draft-cpu-strict --cpu-strict-draft", "onoff", False),
    _later("--spec-draft-prio --prio-draft", "int", 0),
    _later("--spec-draft-poll --poll-draft", "int", 50),
    _later("--spec-draft-cpu-mask-batch -Cbd --cpu-mask-batch-draft"),
    _later("--spec-draft-cpu-strict-batch --cpu-strict-batch-draft", "onoff", False),
    _later("--spec-draft-prio-batch --prio-batch-draft", "int", 0),
    _later("--spec-draft-poll-batch --poll-batch-draft", "int", 50),
    _later("--spec-draft-override-tensor -otd --override-tensor-draft", "list", ()),
    _later("--spec-draft-cpu-moe -cmoed --cpu-moe-draft", "bool", False, env="LLAMA_ARG_SPEC_DRAFT_CPU_MOE"),
    _later("--spec-draft-n-cpu-moe --spec-draft-ncmoe -ncmoed --n-cpu-moe-draft", "int", 0, env="LLAMA_ARG_SPEC_DRAFT_N_CPU_MOE"),
    _later("--spec-draft-device -devd --device-draft", "list", ()),
    _later("--spec-draft-ngl -ngld --gpu-layers-draft --n-gpu-layers-draft", "text", "auto", env="LLAMA_ARG_N_GPU_LAYERS_DRAFT"),
    _later("--spec-draft-type-k -ctkd --cache-type-k-draft", "choice", "f16", env="LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_K", choices=CACHE_TYPES),
    _later("--spec-draft-type-v -ctvd --cache-type-v-draft", "choice", "f16", env="LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_V", choices=CACHE_TYPES),
    _later("--spec-ngram-mod-n-min", "int", 48),
    _later("--spec-ngram-mod-n-max", "int", 64),
    _later("--spec-ngram-mod-n-match", "int", 24),
    *(
        _later(f"--spec-ngram-{kind}-{name}", "int", default)
        for kind in ("simple", "map-k", "map-k4v")
        for name, default in (("size-n", 12), ("size-m", 48), ("min-hits", 1))
    ),
    _later("-lcs --lookup-cache-static", help="cache of lookup decoding", metavar="FILE"),
    _later("-lcd --lookup-cache-dynamic", help="cache of lookup decoding that grows", metavar="FILE"),
)

_GONE: tuple[Flag, ...] = (
    _gone("--draft --draft-n --draft-max", _N_MAX, "LLAMA_ARG_DRAFT_MAX"),
    _gone("--draft-min --draft-n-min", "use --spec-draft-n-min or --spec-ngram-mod-n-min", "LLAMA_ARG_DRAFT_MIN"),
    _gone("--spec-ngram-size-n", "use --spec-ngram-simple-size-n and the like"),
    _gone("--spec-ngram-size-m", "use --spec-ngram-simple-size-m and the like"),
    _gone("--spec-ngram-min-hits", "use --spec-ngram-simple-min-hits and the like"),
)
# fmt: on

LATER_FLAGS = (
    *_ADAPTERS,
    *_EMBEDDINGS,
    *_MEDIA,
    *_ROUTER,
    *_TOOLS,
    *_INFILL,
    *_DRAFT,
    *_GONE,
)
