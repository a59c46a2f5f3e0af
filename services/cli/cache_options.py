"""Values of the flags to how slots share and keep the KV cache. Raises UsageError."""

from pathlib import Path

from services.cli.errors import UsageError
from services.cli.flags import Values
from services.cli.values import get
from services.engine.caching import Caching


def caching(values: Values) -> Caching:
    """As llama-server: where it chooses the number of slots, they share one cache."""
    return Caching(
        is_unified=get(values, "parallel", int) < 0 or get(values, "kv_unified", bool),
        max_slot_tokens=get(values, "kv_unified_per_slot", int),
        prefill_budget=get(values, "prefill_budget", int),
        prefill_threads=get(values, "prefill_threads", int),
        similarity=get(values, "slot_prompt_similarity", float),
        ram_mib=get(values, "cache_ram", int),
        saves_idle=get(values, "cache_idle_slots", bool),
        n_checkpoints=get(values, "swa_checkpoints", int),
        checkpoint_step=get(values, "checkpoint_min_step", int),
        is_swa_full=get(values, "swa_full", bool),
        is_shifting=get(values, "context_shift", bool),
    )


def slot_save_path(values: Values) -> str:
    """The folder of saved slots, absolute; empty for none. It must exist."""
    given = get(values, "slot_save_path", str)
    if given and not Path(given).is_dir():
        raise UsageError(f"--slot-save-path: {given} is not a folder")
    return str(Path(given).absolute()) if given else ""
