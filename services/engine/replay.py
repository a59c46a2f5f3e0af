"""What a continued choice decodes before it goes on: the same calls as at first, where that matters. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from services.engine.context_shift import Shift, shifted
from services.engine.kernels import split

REPLAY_CHUNK = 32
"""Emitted tokens per chunk when a generation is continued: bit-equal to one by one in the exact range.

Beyond that range no chunk gives the same bits, and large ones take a third of the time.
"""
EXACT_CELLS = 512
"""Below so many KV cells a continued choice gets the logits that it would have had undisturbed."""


@dataclass(frozen=True, kw_only=True)
class Replay:
    """tokens: all that is to be decoded. chunks: in calls of so many. shifts: between them.

    is_repeated: the chunks must stay whole.
    """

    tokens: Sequence[int]
    chunks: tuple[int, ...]
    shifts: tuple[Shift, ...] = ()
    is_repeated: bool = False


@dataclass(frozen=True, kw_only=True)
class Logged:
    """What the log says. prompt_chunks: of the first attempt. is_exact: emitted tokens go one by one."""

    prompt: tuple[int, ...]
    prompt_chunks: tuple[int, ...]
    emitted: tuple[int, ...]
    shifts: tuple[Shift, ...] = ()
    is_exact: bool = False


def plan_replay(logged: Logged, *, n_ctx: int, chunk: int, has_float_weights: bool) -> Replay:
    """All of prompt and answer but its last token, which is decoded as if just sampled.

    n_ctx: tokens of a slot. chunk: tokens per call where the calls do not matter. After shifts the
    cells hold what was computed in front of tokens that are gone: to have that again, all of it must
    be decoded again, shifts in between. It is where it can be bit-equal, that is in small slots, or
    if `is_exact`; else what is left in the window is decoded anew.
    """
    tokens = logged.prompt + logged.emitted[:-1]
    n_cells = min(n_ctx, len(tokens) + 1)
    if logged.shifts and n_ctx > EXACT_CELLS and not logged.is_exact:
        window = shifted(tokens, logged.shifts)
        return Replay(tokens=window, chunks=split(len(window), chunk))
    is_equal = n_cells <= EXACT_CELLS
    size = REPLAY_CHUNK if is_equal else chunk
    if logged.is_exact or (is_equal and has_float_weights):
        size = 1
    bounds = (len(logged.prompt), *(shift.at for shift in logged.shifts), len(tokens))
    emitted = (n for start, end in pairwise(bounds) for n in split(end - start, size))
    return Replay(
        tokens=tokens,
        chunks=(*logged.prompt_chunks, *emitted),
        shifts=logged.shifts,
        is_repeated=is_equal or logged.is_exact,
    )
