"""How many prompt tokens are decoded while others generate, and when. Pure: times come in.

A prompt in one go lets everybody else wait until it is decoded. Half of the time is theirs: then the
time between their tokens doubles on average. Which pieces are best depends on the attention kernel.
With flash attention the CPU backend needs 64 rows for its fast one (the other takes 5 to 7 times as
long per row once a slot holds 3,000 tokens), so pieces of 64 rows take turns with decode steps.
Without it few rows cost little, and pieces go along with the decode rows.
"""

from collections import deque
from statistics import median
from typing import Protocol

from services.engine.kernels import TILE_ROWS

N_SHORT = 128
"""Prompts up to this go in one piece: their askers wait for the first token, and the others once."""
MAX_DEBT_US = 5_000_000


class PrefillBudget(Protocol):
    """What goes into a step beside those who generate.

    n_short: prompts up to so many tokens need no budget. size: prompt tokens of one step, at most.
    """

    n_short: int
    size: int

    @property
    def is_open(self) -> bool:
        """Whether the next step may take prompt tokens that need a budget."""
        ...

    def piece(self, chunk: int) -> int:
        """How much of a chunk goes into one step."""
        ...

    def note(self, n_decoding: int, n_prompt: int, elapsed_us: int) -> None:
        """A step with so many decode rows and prompt tokens that need a budget took that long."""
        ...


def prefill_budget(fixed: int, *, is_flash: bool) -> PrefillBudget:
    """fixed: prompt tokens per step as the user wants them, 0 to choose. is_flash: see above."""
    if fixed > 0:
        return FixedBudget(fixed)
    return TurnBudget() if is_flash else PieceBudget()


class FixedBudget:
    """So many tokens in every step, of short prompts too."""

    n_short = 0
    is_open = True

    def __init__(self, size: int) -> None:
        self.size = size

    def piece(self, chunk: int) -> int:
        return min(chunk, self.size)

    def note(self, n_decoding: int, n_prompt: int, elapsed_us: int) -> None:
        pass


class TurnBudget:
    """Pieces of TILE_ROWS (up to twice that, so that no small rest stays), then decode steps for as long."""

    n_short = N_SHORT
    size = 2 * TILE_ROWS - 1

    def __init__(self) -> None:
        self._debt_us = 0

    @property
    def is_open(self) -> bool:
        return self._debt_us <= 0

    def piece(self, chunk: int) -> int:
        return chunk if chunk <= self.size else TILE_ROWS

    def note(self, n_decoding: int, n_prompt: int, elapsed_us: int) -> None:
        """Prompt tokens run up a debt, which decode steps pay off."""
        if n_prompt:
            self._debt_us = min(self._debt_us + elapsed_us, MAX_DEBT_US)
        elif n_decoding:
            self._debt_us = max(0, self._debt_us - elapsed_us)


class PieceBudget:
    """As many tokens beside the decode rows as make a step take twice its time, which is measured."""

    START, LEAST, MOST = 4, 2, TILE_ROWS - 1
    TOO_SLOW, FAST_ENOUGH = 1.9, 1.6
    N_REMEMBERED = 5
    N_BETWEEN_PROBES = 32
    """So many steps with prompt tokens in a row, and one goes without them, to see what that costs."""

    n_short = N_SHORT

    def __init__(self) -> None:
        self.size = self.START
        self._alone_us: dict[int, deque[int]] = {}
        self._n_mixed = 0

    @property
    def is_open(self) -> bool:
        return self._n_mixed < self.N_BETWEEN_PROBES

    def piece(self, chunk: int) -> int:
        return min(chunk, self.size)

    def note(self, n_decoding: int, n_prompt: int, elapsed_us: int) -> None:
        if n_decoding and n_prompt:
            self._n_mixed += 1
            self._adapt(n_decoding, n_prompt, elapsed_us)
        elif n_decoding:
            self._n_mixed = 0
            times = self._alone_us.setdefault(n_decoding, deque(maxlen=self.N_REMEMBERED))
            times.append(elapsed_us)

    def _adapt(self, n_decoding: int, n_prompt: int, elapsed_us: int) -> None:
        """Only full pieces tell anything about larger ones."""
        alone_us = median(self._alone_us.get(n_decoding) or [0])
        if not alone_us:
            return
        if elapsed_us > self.TOO_SLOW * alone_us:
            self.size = max(self.LEAST, min(self.size, n_prompt) * 7 // 8)
        elif elapsed_us < self.FAST_ENOUGH * alone_us and n_prompt >= self.size:
            self.size = min(self.MOST, self.size + 1 + self.size // 8)
