"""How an engine loads a model and runs it."""

from services.cli.table.row import ENGINE, GATEWAY, I32, ON_OFF_AUTO, Flag, flag

CACHE_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")
LOAD_MODES = ("auto", "none", "mmap", "mlock", "mmap+mlock", "dio")
_SAME_CORES = "no effect: prompts run on the same cores as tokens"
_OPENMP = "no effect: this build's threads wait as OpenMP says"

# fmt: off
_CONTEXT: tuple[Flag, ...] = (
    flag("-c --ctx-size", "LLAMA_ARG_CTX_SIZE", "int", 0, ENGINE, "tokens of context over all slots, 0 for the model's own", low=0, high=I32),
    flag("-np --parallel", "LLAMA_ARG_N_PARALLEL", "int", -1, ENGINE, "slots, that is requests decoded at once, -1 chooses", low=-1, high=256),
    flag("-b --batch-size", "LLAMA_ARG_BATCH", "int", 2048, ENGINE, "tokens in one decode call at most", low=1, high=I32),
    flag("-ub --ubatch-size", "LLAMA_ARG_UBATCH", "int", 512, ENGINE, "tokens in one graph at most", low=1, high=I32),
    flag("-fa --flash-attn", "LLAMA_ARG_FLASH_ATTN", "choice", "auto", ENGINE, "flash attention", choices=ON_OFF_AUTO),
    flag("-ctk --cache-type-k", "LLAMA_ARG_CACHE_TYPE_K", "choice", "f16", ENGINE, "type of the keys in the KV cache", choices=CACHE_TYPES),
    flag("-ctv --cache-type-v", "LLAMA_ARG_CACHE_TYPE_V", "choice", "f16", ENGINE, "type of the values in the KV cache", choices=CACHE_TYPES),
    flag("-kvo --kv-offload / -nkvo --no-kv-offload", "LLAMA_ARG_KV_OFFLOAD", "bool", True, ENGINE, "keep the KV cache on the GPU"),
    flag("--op-offload / --no-op-offload", "LLAMATAPE_OP_OFFLOAD", "bool", True, ENGINE, "compute with tensors of the host on the GPU"),
    flag("--swa-full", "LLAMA_ARG_SWA_FULL", "bool", False, ENGINE, "keep the whole KV cache of sliding-window models"),
    flag("--perf / --no-perf", "LLAMA_ARG_PERF", "bool", False, ENGINE, "llama.cpp's own timings"),
    flag("-dt --defrag-thold", "LLAMA_ARG_DEFRAG_THOLD", "float", -1.0, ENGINE, "deprecated, no effect"),
    flag("--rope-scaling", "LLAMA_ARG_ROPE_SCALING_TYPE", "choice", "", ENGINE, "RoPE scaling (default: the model's)", choices=("none", "linear", "yarn")),
    flag("--rope-scale", "LLAMA_ARG_ROPE_SCALE", "float", 0.0, ENGINE, "RoPE context scaling factor: N times the context, 0 for the model's", low=0, high=1e9),
    flag("--rope-freq-base", "LLAMA_ARG_ROPE_FREQ_BASE", "float", 0.0, ENGINE, "RoPE base frequency, 0 for the model's", low=0, high=1e30),
    flag("--rope-freq-scale", "LLAMA_ARG_ROPE_FREQ_SCALE", "float", 0.0, ENGINE, "RoPE frequency factor: 1/N times the context, 0 for the model's", low=0, high=1e9),
    flag("--yarn-orig-ctx", "LLAMA_ARG_YARN_ORIG_CTX", "int", 0, ENGINE, "YaRN: context the model was trained with, 0 for what it says", low=0, high=I32),
    flag("--yarn-ext-factor", "LLAMA_ARG_YARN_EXT_FACTOR", "float", -1.0, ENGINE, "YaRN: extrapolation mix, 0 interpolates only", low=-1e9, high=1e9),
    flag("--yarn-attn-factor", "LLAMA_ARG_YARN_ATTN_FACTOR", "float", -1.0, ENGINE, "YaRN: factor of attention's magnitude", low=-1e9, high=1e9),
    flag("--yarn-beta-slow", "LLAMA_ARG_YARN_BETA_SLOW", "float", -1.0, ENGINE, "YaRN: high correction dimension", low=-1e9, high=1e9),
    flag("--yarn-beta-fast", "LLAMA_ARG_YARN_BETA_FAST", "float", -1.0, ENGINE, "YaRN: low correction dimension", low=-1e9, high=1e9),
    flag("--warmup / --no-warmup", "LLAMATAPE_WARMUP", "bool", True, ENGINE, "decode once before the first request"),
    flag("-cb --cont-batching / -nocb --no-cont-batching", "LLAMA_ARG_CONT_BATCHING", "bool", True, ENGINE, "take requests into a running batch (always so: switching it off has no effect)"),
)

_THREADS: tuple[Flag, ...] = (
    flag("-t --threads", "LLAMA_ARG_THREADS", "int", None, ENGINE, "threads that decode, 0 or less for all logical cores (default: one per physical core)", low=-I32, high=1024),
    flag("-tb --threads-batch", "LLAMATAPE_THREADS_BATCH", "int", None, ENGINE, "threads that prefill (default: as --threads)", low=-I32, high=1024),
    flag("-C --cpu-mask", "LLAMATAPE_CPU_MASK", "text", "", ENGINE, "cores to decode on, as a hexadecimal mask", metavar="MASK"),
    flag("-Cr --cpu-range", "LLAMATAPE_CPU_RANGE", "text", "", ENGINE, "cores to decode on, as a range; adds to --cpu-mask", metavar="LO-HI"),
    flag("--cpu-strict", "LLAMATAPE_CPU_STRICT", "onoff", False, ENGINE, "one core per thread (no effect: threads share the cores of --cpu-mask)"),
    flag("--prio", "LLAMATAPE_PRIO", "int", 0, ENGINE, "priority of the threads (no effect: use nice)", low=-1, high=3),
    flag("--poll", "LLAMATAPE_POLL", "int", 50, ENGINE, f"how much threads spin while they wait ({_OPENMP})", low=0, high=100),
    flag("-Cb --cpu-mask-batch", "LLAMATAPE_CPU_MASK_BATCH", "text", "", ENGINE, f"cores to prefill on ({_SAME_CORES})", metavar="MASK"),
    flag("-Crb --cpu-range-batch", "LLAMATAPE_CPU_RANGE_BATCH", "text", "", ENGINE, f"cores to prefill on ({_SAME_CORES})", metavar="LO-HI"),
    flag("--cpu-strict-batch", "LLAMATAPE_CPU_STRICT_BATCH", "onoff", False, ENGINE, f"one core per thread ({_SAME_CORES})"),
    flag("--prio-batch", "LLAMATAPE_PRIO_BATCH", "int", 0, ENGINE, "priority of the threads that prefill (no effect: use nice)", low=0, high=3),
    flag("--poll-batch", "LLAMATAPE_POLL_BATCH", "int", 50, ENGINE, f"how much threads spin that prefill ({_OPENMP})", low=0, high=100),
    flag("--numa", "LLAMA_ARG_NUMA", "choice", "", ENGINE, "for machines with several memory nodes", choices=("distribute", "isolate", "numactl")),
)

_WEIGHTS: tuple[Flag, ...] = (
    flag("-lm --load-mode", "LLAMA_ARG_LOAD_MODE", "choice", "auto", ENGINE, "how the file is read: mapped, locked in memory, directly", choices=LOAD_MODES),
    flag("--mmap / --no-mmap", "LLAMA_ARG_MMAP", "bool", True, ENGINE, "map the file into memory (older name: see --load-mode)"),
    flag("--mlock", "LLAMA_ARG_MLOCK", "bool", False, ENGINE, "lock the file in memory (older name: see --load-mode)"),
    flag("-dio --direct-io / -ndio --no-direct-io", "LLAMA_ARG_DIO", "bool", False, ENGINE, "read the file directly (older name: see --load-mode)"),
    flag("-lzm --lazy-mode", "LLAMA_ARG_LAZY_MODE", "choice", "auto", ENGINE, "read rows of large tensors when they are needed", choices=ON_OFF_AUTO),
    flag("--check-tensors", "LLAMATAPE_CHECK_TENSORS", "bool", False, ENGINE, "look for invalid values in the model"),
    flag("--override-kv", "LLAMATAPE_OVERRIDE_KV", "list", (), ENGINE, "metadata instead of the model's, comma-separated; types int, float, bool, str", metavar="KEY=TYPE:VALUE"),
    flag("--repack / -nr --no-repack", "LLAMA_ARG_REPACK", "bool", True, ENGINE, "rearrange weights for the processor"),
    flag("--no-host", "LLAMA_ARG_NO_HOST", "bool", False, ENGINE, "do without the host's buffer, so that others may be used"),
    flag("-dev --device", "LLAMA_ARG_DEVICE", "list", (), ENGINE, "devices to offload to, comma-separated, none for no offloading; see --list-devices", metavar="DEVICE"),
    flag("-ngl --gpu-layers --n-gpu-layers", "LLAMA_ARG_N_GPU_LAYERS", "text", "auto", ENGINE, "layers on the GPU: a number, auto or all", metavar="N"),
    flag("-sm --split-mode", "LLAMA_ARG_SPLIT_MODE", "choice", "layer", ENGINE, "how the model is spread over several GPUs", choices=("none", "layer", "row", "tensor")),
    flag("-ts --tensor-split", "LLAMA_ARG_TENSOR_SPLIT", "list", (), ENGINE, "share of the model per GPU, comma-separated", metavar="N"),
    flag("-mg --main-gpu", "LLAMA_ARG_MAIN_GPU", "int", 0, ENGINE, "GPU to use where the model is not spread", low=0, high=255),
    flag("-ot --override-tensor", "LLAMA_ARG_OVERRIDE_TENSOR", "list", (), ENGINE, "buffer types for tensors, comma-separated", metavar="PATTERN=TYPE"),
    flag("-cmoe --cpu-moe", "LLAMA_ARG_CPU_MOE", "bool", False, ENGINE, "keep the weights of experts in the CPU's memory"),
    flag("-ncmoe --n-cpu-moe", "LLAMA_ARG_N_CPU_MOE", "int", 0, ENGINE, "keep the weights of experts of the first N layers there", low=0, high=4096),
    flag("-ncffn --n-cpu-ffn", "LLAMA_ARG_N_CPU_FFN", "int", 0, ENGINE, "keep the feed-forward weights of the first N layers there", low=0, high=4096),
    flag("-fit --fit", "LLAMA_ARG_FIT", "onoff", True, ENGINE, "shrink what was not set until the model fits into a GPU (no effect on a CPU)"),
    flag("-fitt --fit-target", "LLAMA_ARG_FIT_TARGET", "list", (), ENGINE, "MiB to leave free per GPU for --fit (no effect on a CPU)", metavar="MIB"),
    flag("-fitc --fit-ctx", "LLAMA_ARG_FIT_CTX", "int", 4096, ENGINE, "least context that --fit may choose (no effect on a CPU)", low=0, high=I32),
    flag("--rpc", "LLAMA_ARG_RPC", "list", (), ENGINE, "llama.cpp RPC servers", metavar="HOST:PORT", is_built=False),
)

_CACHE: tuple[Flag, ...] = (
    flag("--failover-replay", "LLAMATAPE_FAILOVER_REPLAY", "choice", "fast", ENGINE, "how answers of lost engines are continued: fast, or exact (tokens decoded one by one, bit-equal for any length)", choices=("fast", "exact")),
    flag("--prefill-threads", "LLAMATAPE_PREFILL_THREADS", "int", -1, ENGINE, "threads (of --threads) that long prompts have to themselves while others generate, in memory of their own; 0: none (default: half of them, where no GPU computes)", low=-1, high=512),
    flag("--prefill-budget", "LLAMATAPE_PREFILL_BUDGET", "int", 0, ENGINE, "prompt tokens per step while others generate, 0 for half of the time", low=0, high=I32),
    flag("-kvu --kv-unified / -no-kvu --no-kv-unified", "LLAMA_ARG_KV_UNIFIED", "bool", False, ENGINE, "one KV cache shared by all slots (always so where --parallel chooses)"),
    flag("--kv-unified-per-slot", "LLAMA_ARG_KV_UNIFIED_PER_SLOT", "int", 0, ENGINE, "most tokens of one slot, 0 for no such limit", low=0, high=I32),
    flag("--cache-prompt / --no-cache-prompt", "LLAMA_ARG_CACHE_PROMPT", "bool", True, ENGINE, "reuse what a slot has of a prompt"),
    flag("--cache-reuse", "LLAMA_ARG_CACHE_REUSE", "int", 0, ENGINE, "least tokens to reuse from the cache by shifting, 0 disables", low=0, high=I32),
    flag("-cram --cache-ram", "LLAMA_ARG_CACHE_RAM", "int", 8192, ENGINE, "MiB for prompts of idle slots, -1 for no limit, 0 disables", low=-1, high=I32),
    flag("--cache-idle-slots / --no-cache-idle-slots", "LLAMA_ARG_CACHE_IDLE_SLOTS", "bool", True, ENGINE, "save idle slots to the prompt cache when a request comes"),
    flag("-sps --slot-prompt-similarity", "LLAMATAPE_SLOT_PROMPT_SIMILARITY", "float", 0.1, ENGINE, "least share of a prompt that a slot must have to be chosen for it, 0 disables", low=0, high=1),
    flag("-ctxcp --ctx-checkpoints --swa-checkpoints", "LLAMA_ARG_CTX_CHECKPOINTS", "int", 32, ENGINE, "context checkpoints per slot at most", low=0, high=I32),
    flag("-cms --checkpoint-min-step", "LLAMA_ARG_CHECKPOINT_MIN_SPACING_NT", "int", 8192, ENGINE, "least tokens between two checkpoints", low=0, high=I32),
    flag("--context-shift / --no-context-shift", "LLAMA_ARG_CONTEXT_SHIFT", "bool", False, ENGINE, "forget the oldest tokens when the context is full"),
    flag("--slot-save-path", "LLAMATAPE_SLOT_SAVE_PATH", "text", "", f"{ENGINE} {GATEWAY}", "folder to save slots in", metavar="DIR"),
    flag("--sleep-idle-seconds", "LLAMATAPE_SLEEP_IDLE_SECONDS", "int", -1, ENGINE, "seconds without requests after which the model is unloaded, -1 for never", low=-1, high=I32, is_built=False),
    flag("--simulate", "LLAMATAPE_SIMULATE", "text", "", ENGINE, "decode without a model, at that pace: tokens_per_s=50,ttft_ms=0,jitter=0,prompt_tokens_per_s=0,eos_after=-1,fail_after=-1", metavar="SETTINGS"),
)

_CHAT: tuple[Flag, ...] = (
    flag("--jinja / --no-jinja", "LLAMA_ARG_JINJA", "bool", True, ENGINE, "render chat templates with Jinja"),
    flag("--chat-template", "LLAMA_ARG_CHAT_TEMPLATE", "text", "", ENGINE, "Jinja chat template instead of the model's", metavar="TEMPLATE"),
    flag("--chat-template-file", "LLAMA_ARG_CHAT_TEMPLATE_FILE", "text", "", ENGINE, "file with a Jinja chat template", metavar="FILE"),
    flag("--chat-template-kwargs", "LLAMA_ARG_CHAT_TEMPLATE_KWARGS", "text", "", ENGINE, "further variables of the chat template, a JSON object", metavar="JSON"),
    flag("--prefill-assistant / --no-prefill-assistant", "LLAMA_ARG_PREFILL_ASSISTANT", "bool", True, ENGINE, "go on with a last message that is the assistant's"),
    flag("-rea --reasoning", "LLAMA_ARG_REASONING", "choice", "auto", ENGINE, "let the model think, where its template can", choices=ON_OFF_AUTO),
    flag("--reasoning-format", "LLAMA_ARG_THINK", "choice", "deepseek", ENGINE, "where thoughts go in an answer", choices=("none", "auto", "deepseek", "deepseek-legacy")),
    flag("--reasoning-effort", "LLAMA_ARG_REASONING_EFFORT", "text", "default", ENGINE, "how hard to think, for the template: minimal, low, medium, high …", metavar="LEVEL"),
    flag("--reasoning-preserve / --no-reasoning-preserve", "LLAMA_ARG_REASONING_PRESERVE", "bool", True, ENGINE, "give the template the thoughts of all turns, not only the last"),
    flag("--reasoning-budget", "LLAMA_ARG_THINK_BUDGET", "int", -1, ENGINE, "tokens of thought at most, -1 for no limit", low=-1, high=I32),
    flag("--reasoning-budget-message", "LLAMA_ARG_THINK_BUDGET_MESSAGE", "text", "", ENGINE, "what to say when the budget of thought is used up", metavar="TEXT"),
    flag("--skip-chat-parsing / --no-skip-chat-parsing", "LLAMA_ARG_SKIP_CHAT_PARSING", "bool", False, ENGINE, "leave thoughts and tool calls in the text of an answer"),
    flag("-sp --special", "LLAMATAPE_SPECIAL", "bool", False, ENGINE, "show special tokens in answers", is_built=False),
    flag("--spm-infill", "LLAMATAPE_SPM_INFILL", "bool", False, ENGINE, "suffix before prefix when filling in"),
)

_SELF: tuple[Flag, ...] = (
    flag("--engine-id", "LLAMATAPE_ENGINE_ID", "text", "", ENGINE, "name of this engine on the bus (default: random)"),
    flag("--ordinal", "LLAMATAPE_ENGINE_ORDINAL", "int", 0, ENGINE, "number of this engine among those of its model", low=0, high=9999),
)
# fmt: on

ENGINE_FLAGS = (*_CONTEXT, *_THREADS, *_WEIGHTS, *_CACHE, *_CHAT, *_SELF)
