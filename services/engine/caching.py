"""How the slots of an engine share the KV cache, and what is kept of prompts: llama-server's flags."""

from schemas.struct import Message


class Caching(Message, frozen=True, kw_only=True):
    """Sizes in tokens where nothing else is said. The same values go from the settings to the decoder.

    is_unified: one cache, of which each slot may use all; else each has an equal share of its own.
    max_slot_tokens: of one slot, 0 for no further limit. prefill_budget: prompt tokens per step while
    others generate, 0 adapts them (see PrefillBudget). prefill_threads: what long prompts have to
    themselves meanwhile (see SidePrompts), −1 by itself. similarity: the part of a prompt that a slot
    must hold to be chosen for it, 0 never. ram_mib: MiB for prompts that lost their slot, −1 for no
    limit, 0 for none. saves_idle: idle slots are copied there whenever a generation starts.
    n_checkpoints: per slot at most. checkpoint_step: least distance of two of them. is_swa_full: keep
    all cells of a sliding-window model. is_shifting: a full slot forgets its oldest tokens.
    """

    is_unified: bool = False
    max_slot_tokens: int = 0
    prefill_budget: int = 0
    prefill_threads: int = -1
    similarity: float = 0.1
    ram_mib: int = 8192
    saves_idle: bool = True
    n_checkpoints: int = 32
    checkpoint_step: int = 8192
    is_swa_full: bool = False
    is_shifting: bool = False
