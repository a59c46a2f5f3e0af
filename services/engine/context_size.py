"""How many tokens a slot has room for: llama.cpp's arithmetic, known before a context exists. Pure."""

from typing import Protocol

PADDING = 256
FALLBACK = 4096
"""Where neither the settings nor the model say."""


class Sizes(Protocol):
    """What the settings say of it: see EngineSettings."""

    @property
    def n_ctx(self) -> int: ...
    @property
    def n_slots(self) -> int: ...


def _padded(n: int) -> int:
    return -(-n // PADDING) * PADDING


def slot_context(settings: Sizes, n_ctx_train: int) -> tuple[int, int]:
    """(tokens over all slots, tokens per slot) of a context whose slots have equal shares.

    n_ctx_train: tokens that the model was trained on, 0 when it does not say. As llama.cpp does: the
    whole (0: the model's own) is rounded up to 256, divided, rounded up again; as llama-server does,
    no slot gets more than the model was trained on.
    """
    whole = _padded(settings.n_ctx or n_ctx_train or FALLBACK)
    per_slot = _padded(whole // settings.n_slots)
    usable = min(per_slot, n_ctx_train) if n_ctx_train else per_slot
    return per_slot * settings.n_slots, usable
