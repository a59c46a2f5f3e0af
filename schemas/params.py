"""The resolved parameters of one generation, under llama-server's names.

`prepare` fills every field from the request, the engine's flags and the model; nothing downstream
knows a default. The defaults below are part of the wire form, since they are not sent: changing one
would change what old logs say. `seed` is the requested one; the concrete seed of each choice stands in `started`.
"""

from schemas.struct import Message

DEFAULT_SAMPLERS = (
    "penalties",
    "dry",
    "top_n_sigma",
    "top_k",
    "typ_p",
    "top_p",
    "min_p",
    "xtc",
    "temperature",
)
RANDOM_SEED = 0xFFFFFFFF
"""The seed that asks for a random one (−1 as an unsigned 32-bit number)."""


class GrammarTrigger(Message, frozen=True, kw_only=True):
    """When a lazy grammar starts. kind: word, token, pattern or pattern_full."""

    kind: str
    value: str
    token: int = -1


class Sampling(Message, frozen=True, kw_only=True):
    """How the next token is chosen. Probabilities 0–1, `*_last_n` in tokens, biases in logits."""

    seed: int = RANDOM_SEED
    temperature: float = 0.8
    dynatemp_range: float = 0.0
    dynatemp_exponent: float = 1.0
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    top_n_sigma: float = -1.0
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    typical_p: float = 1.0
    repeat_last_n: int = 64
    repeat_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int = 64
    dry_sequence_breakers: tuple[str, ...] = ("\n", ":", '"', "*")
    mirostat: int = 0
    mirostat_tau: float = 5.0
    mirostat_eta: float = 0.1
    adaptive_target: float = -1.0
    adaptive_decay: float = 0.9
    min_keep: int = 0
    samplers: tuple[str, ...] = DEFAULT_SAMPLERS
    logit_bias: tuple[tuple[int, float], ...] = ()
    ignore_eos: bool = False
    grammar: str = ""
    grammar_lazy: bool = False
    grammar_triggers: tuple[GrammarTrigger, ...] = ()
    preserved_tokens: tuple[int, ...] = ()
    n_probs: int = 0
    post_sampling_probs: bool = False
    backend_sampling: bool = False
    reasoning_budget_tokens: int = -1
    reasoning_budget_start: tuple[int, ...] = ()
    reasoning_budget_ends: tuple[tuple[int, ...], ...] = ()
    reasoning_budget_forced: tuple[int, ...] = ()
    reasoning_budget_prefill: tuple[int, ...] = ()
    reasoning_budget_message: str = ""
    reasoning_control: bool = False


class Limits(Message, frozen=True, kw_only=True):
    """When a generation ends and what it may reuse. Counts in tokens, −1 means no limit."""

    n_predict: int = -1
    n_keep: int = 0
    n_discard: int = 0
    n_indent: int = 0
    t_max_predict_ms: int = -1
    stop: tuple[str, ...] = ()
    cache_prompt: bool = True
    n_cache_reuse: int = 0
    id_slot: int = -1
    lora: tuple[tuple[int, float], ...] = ()


class Output(Message, frozen=True, kw_only=True):
    """What the answer shows. sse_ping_interval: seconds, −1 disables pings."""

    stream: bool = False
    include_usage: bool = False
    timings_per_token: bool = False
    return_tokens: bool = False
    return_progress: bool = False
    response_fields: tuple[str, ...] = ()
    sse_ping_interval: int = 30
    verbose: bool = False
    reasoning_format: str = "auto"
    reasoning_in_content: bool = False
    chat_format: str = "Content-only"
    generation_prompt: str = ""
    is_continuation: bool = False
    echo: bool = False
    parse_tool_calls: bool = False


class Params(Message, frozen=True, kw_only=True):
    """All parameters of one generation; n_cmpl is the number of choices per prompt."""

    sampling: Sampling = Sampling()
    limits: Limits = Limits()
    output: Output = Output()
    n_cmpl: int = 1
