"""Checkpoints of what cannot be cut back: sliding windows and recurrent states. Pure over opaque states.

The cells of a sliding window are overwritten, and a recurrent state is one number set for all tokens;
so a prompt that leaves the cached one somewhere would have to be computed from zero. Copies made
shortly before the ends of prompts avoid that, since that is where follow-up turns branch off.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from services.engine.states import State

TAIL = 4
"""A checkpoint lies so many tokens before the end of a prompt, another one a ubatch before that."""


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """State of a slot when it held `n_tokens` tokens, and the generation that made it."""

    n_tokens: int
    generation_id: str
    state: State


def places(n_prompt: int, n_cached: int, n_ubatch: int) -> tuple[int, ...]:
    """After how many tokens of a prompt checkpoints are made, beyond the cached ones."""
    wanted = (n_prompt - TAIL - n_ubatch, n_prompt - TAIL)
    return tuple(n for n in wanted if n > n_cached)


def newest(checkpoints: Sequence[Checkpoint], n_tokens: int) -> Checkpoint | None:
    """The last one that covers no more than the first `n_tokens` tokens."""
    fitting = [checkpoint for checkpoint in checkpoints if checkpoint.n_tokens <= n_tokens]
    return max(fitting, key=lambda checkpoint: checkpoint.n_tokens, default=None)


def valid(checkpoints: Sequence[Checkpoint], n_tokens: int) -> list[Checkpoint]:
    """Those that are still about the slot's tokens when only the first `n_tokens` are kept."""
    return [checkpoint for checkpoint in checkpoints if checkpoint.n_tokens <= n_tokens]


def added(
    checkpoints: Sequence[Checkpoint], new: Checkpoint, *, n_most: int, min_step: int
) -> list[Checkpoint]:
    """The list with `new`, and at most `n_most` long: close ones of other generations go first."""
    kept = [old for old in checkpoints if old.n_tokens != new.n_tokens]
    if len(kept) + 1 >= n_most:
        kept = _spaced(kept, new.generation_id, min_step)
    return [*kept[max(0, len(kept) + 1 - n_most) :], new]


def _spaced(
    checkpoints: Sequence[Checkpoint], generation_id: str, min_step: int
) -> list[Checkpoint]:
    """Without those that lie close behind another one, unless they are this generation's."""
    kept: list[Checkpoint] = []
    for old in checkpoints:
        is_close = bool(kept) and old.n_tokens <= kept[-1].n_tokens + min_step
        if old.generation_id == generation_id or not is_close:
            kept.append(old)
    return kept
