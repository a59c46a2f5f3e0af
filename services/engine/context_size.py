"""How many tokens a slot has room for: llama.cpp's arithmetic, known before a context exists. Pure."""

from typing import Protocol

from services.engine.caching import Caching

PADDING = 256
FALLBACK = 4096
"""Where neither the settings nor the model say."""


class Sizes(Protocol):
    """What the settings say of it: see EngineSettings."""

    @property
    def n_ctx(self) -> int: ...
    @property
    def n_slots(self) -> int: ...
    @property
    def caching(self) -> Caching: ...


def _padded(n: int) -> int:
    return -(-n // PADDING) * PADDING


def slot_context(settings: Sizes, n_ctx_train: int) -> tuple[int, int]:
    """(tokens over all slots, tokens per slot) of the context that these settings make.

    n_ctx_train: tokens that the model was trained on, 0 when it does not say. As llama.cpp does: the
    whole (0: the model's own) is rounded up to 256; slots that do not share it get equal parts, rounded
    up again; as llama-server does, no slot gets more than its limit or than the model was trained on.
    """
    whole = _padded(_wanted(settings) or n_ctx_train or FALLBACK)
    limits = [n for n in (settings.caching.max_slot_tokens, n_ctx_train) if n > 0]
    if settings.caching.is_unified:
        return whole, min(whole, *limits) if limits else whole
    per_slot = _padded(whole // settings.n_slots)
    return per_slot * settings.n_slots, min(per_slot, *limits) if limits else per_slot


def _wanted(settings: Sizes) -> int:
    """A limit per slot sizes the whole where nothing else does."""
    return settings.n_ctx or settings.n_slots * settings.caching.max_slot_tokens
