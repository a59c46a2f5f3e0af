"""Settings of one engine: what to load and how to run it."""

from dataclasses import dataclass, field

from schemas.params import Params
from services.engine.caching import Caching
from services.engine.options import ContextOptions, ModelOptions
from services.engine.simulation import Simulation

FAST, EXACT = "fast", "exact"


@dataclass(frozen=True, kw_only=True)
class EngineSettings:
    """One engine serves one model.

    engine, host: ids. model_key, model_name, aliases: whom it serves. model_path: a GGUF file.
    n_ctx: tokens over all slots, 0 for the model's own. n_batch, n_ubatch: tokens per `llama_decode`
    call and per graph. n_threads: 0 for half the logical cores, at least 1. n_slots: parallel
    sequences. defaults: parameters that a request does not set. template: a Jinja chat template that
    replaces the model's. is_jinja: whether templates are rendered at all. ordinal: this engine's
    number in `tasks.<model_key>.e<ordinal>`. failover_replay: how emitted tokens are decoded again when
    a log is continued, fast (32 at a time) or exact (one by one). drain_grace_s: how long running work
    may go on after SIGTERM before it is handed over. is_verbose: llama.cpp's log goes to stderr.
    simulate: decode without weights; model_path may be empty then. cpus: cores of the decoder, () for
    all. model, context: further options of llama.cpp. caching: how slots share and keep the KV cache.
    slot_save_path: folder of saved slots, empty where saving is not allowed.
    template_kwargs: JSON object of variables that a chat does not set. prefill_assistant: a last
    assistant message is continued. skips_parsing: all text of an answer is content.
    is_suffix_first: of a gap to be filled in, models are told what comes after it first.
    """

    engine: str
    host: str
    model_key: str
    model_name: str
    model_path: str
    aliases: tuple[str, ...] = ()
    ordinal: int = 0
    n_ctx: int = 0
    n_batch: int = 2048
    n_ubatch: int = 512
    n_threads: int = 0
    n_threads_batch: int = 0
    n_slots: int = 4
    is_warmup: bool = True
    is_jinja: bool = True
    template: str = ""
    is_verbose: bool = False
    failover_replay: str = FAST
    drain_grace_s: float = 0.0
    defaults: Params = field(default_factory=Params)
    simulate: Simulation | None = None
    cpus: tuple[int, ...] = ()
    model: ModelOptions = field(default_factory=ModelOptions)
    context: ContextOptions = field(default_factory=ContextOptions)
    slot_save_path: str = ""
    caching: Caching = field(default_factory=Caching)
    template_kwargs: str = "{}"
    prefill_assistant: bool = True
    skips_parsing: bool = False
    is_suffix_first: bool = False
