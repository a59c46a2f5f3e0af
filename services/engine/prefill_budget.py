"""How many prompt tokens go into a step while others generate. Pure: times come in.

A prompt in one go lets everybody else wait until it is decoded. In small pieces beside their rows it
costs them little, since the weights are read once for all rows; how many tokens may go along depends
on the model and the machine, so it is measured.
"""

from collections import deque
from statistics import median

START, LEAST, MOST = 16, 8, 63
N_SHORT = 128
"""Prompts up to this go in one piece: their askers wait for the first token, and the others once."""
TOO_SLOW, FAST_ENOUGH = 1.9, 1.6
"""Bounds of a step's time in terms of a step without prompt tokens."""
N_REMEMBERED = 5
N_BETWEEN_PROBES = 32
"""So many steps with prompt tokens in a row, and one goes without them, to see what that costs now."""


class PrefillBudget:
    """fixed: prompt tokens per step, 0 to adapt them. size: those of the next step.

    n_short: prompts up to so many tokens need no budget.
    """

    def __init__(self, fixed: int = 0) -> None:
        self._is_fixed = fixed > 0
        self.size = fixed or START
        self.n_short = 0 if self._is_fixed else N_SHORT
        self._alone_us: dict[int, deque[int]] = {}
        self._n_mixed = 0

    @property
    def is_probing(self) -> bool:
        """Whether the next step should go without prompt tokens."""
        return not self._is_fixed and self._n_mixed >= N_BETWEEN_PROBES

    def note(self, n_decoding: int, n_prompt: int, elapsed_us: int) -> None:
        """A step with so many decode rows and prompt tokens took that long."""
        if self._is_fixed or not n_decoding or not elapsed_us:
            return
        if n_prompt:
            self._n_mixed += 1
            self._adapt(n_decoding, n_prompt, elapsed_us)
        else:
            self._n_mixed = 0
            times = self._alone_us.setdefault(n_decoding, deque(maxlen=N_REMEMBERED))
            times.append(elapsed_us)

    def _adapt(self, n_decoding: int, n_prompt: int, elapsed_us: int) -> None:
        """Only full pieces tell anything about larger ones."""
        times = self._alone_us.get(n_decoding)
        if not times:
            return
        ratio = elapsed_us / median(times)
        if ratio > TOO_SLOW:
            self.size = max(LEAST, min(self.size, n_prompt) * 7 // 8)
        elif ratio < FAST_ENOUGH and n_prompt >= self.size:
            self.size = min(MOST, self.size + 1 + self.size // 8)
