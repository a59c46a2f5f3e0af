"""The reasoning budget: counts the tokens of a thinking block, and forces its end. Pure.

Behaves as llama.cpp's sampler of that name, which the library does not have. Its state follows from
the tokens and from where an early end was ordered, so replaying these restores it.
"""

from collections.abc import Callable, Sequence
from enum import Enum, auto

from schemas.params import Sampling
from services.engine.decoder.characters import is_whole

Ids = tuple[int, ...]


class Phase(Enum):
    """BEFORE: no thinking block has begun. CLOSING: the budget is spent, a character is not complete.
    FORCING: the end is being forced. AFTER: the block is over."""

    BEFORE = auto()
    THINKING = auto()
    CLOSING = auto()
    FORCING = auto()
    AFTER = auto()


class ReasoningBudget:
    """Watches one choice. Every token is given to `accept`; `forced` says which one must come next.

    start: tokens that begin thinking. ends: those that end it. forced: what is said when the budget
    is spent. n_tokens: the budget, None: no limit. piece_of: the bytes of a token.
    """

    def __init__(
        self,
        *,
        start: Ids,
        ends: Sequence[Ids],
        forced: Ids,
        n_tokens: int | None,
        piece_of: Callable[[int], bytes],
    ) -> None:
        self.phase = Phase.BEFORE
        self.end_met: Ids = ()
        """The end that closed the last block, once it is over; empty where none of `ends` did."""
        self._start = _Matcher([start])
        self._ends = _Matcher(ends)
        self._forced = forced
        self._budget = n_tokens
        self._n_left: int | None = None
        self._n_forced = 0
        self._piece_of = piece_of

    @property
    def is_thinking(self) -> bool:
        """Inside a thinking block, forced or not: a lazy grammar rests there."""
        return self.phase not in (Phase.BEFORE, Phase.AFTER)

    @property
    def forced(self) -> int | None:
        """The token that must come next, if there is one."""
        if self.phase is not Phase.FORCING or self._n_forced >= len(self._forced):
            return None
        return self._forced[self._n_forced]

    def end_now(self) -> bool:
        """Force the end of the block; False, and nothing happens, where it is not counting."""
        if self.phase is not Phase.THINKING:
            return False
        self._force()
        return True

    def accept(self, token: int) -> None:
        """A token came."""
        match self.phase:
            case Phase.BEFORE | Phase.AFTER:
                self._look_for_start(token)
            case Phase.THINKING | Phase.CLOSING:
                self._count(token)
            case Phase.FORCING:
                self._go_on_forcing(token)

    def _look_for_start(self, token: int) -> None:
        if self._start.accept(token) is None:
            return
        self._ends.reset()
        self.end_met = ()
        self._n_left = self._budget
        self.phase = Phase.THINKING
        if self._budget is not None and self._budget <= 0:
            self._force()

    def _count(self, token: int) -> None:
        if (end := self._ends.accept(token)) is not None:
            self.phase, self.end_met = Phase.AFTER, end
            return
        if self.phase is Phase.THINKING:
            if self._n_left is None:
                return
            self._n_left -= 1
            if self._n_left > 0:
                return
        if is_whole(self._piece_of(token)):
            self._force()
        elif self.phase is Phase.THINKING:
            self.phase = Phase.CLOSING
            self._ends.reset()

    def _force(self) -> None:
        self.phase = Phase.FORCING
        self._n_forced = 0
        self._ends.reset()

    def _go_on_forcing(self, token: int) -> None:
        end = self._ends.accept(token)
        self._n_forced += 1
        if self._n_forced >= len(self._forced):
            self.phase, self.end_met = Phase.AFTER, end or ()


class _Matcher:
    """Finds the longest of some sequences that ends at the present token; a find starts it afresh."""

    def __init__(self, sequences: Sequence[Ids]) -> None:
        self._sequences = sorted({s for s in sequences if s}, key=len, reverse=True)
        self._n_kept = max(map(len, self._sequences), default=0)
        self._last: Ids = ()

    def accept(self, token: int) -> Ids | None:
        self._last = (*self._last, token)[-self._n_kept :] if self._n_kept else ()
        for sequence in self._sequences:
            if self._last[-len(sequence) :] == sequence:
                self.reset()
                return sequence
        return None

    def reset(self) -> None:
        self._last = ()


def reasoning_budget(
    sampling: Sampling, piece_of: Callable[[int], bytes]
) -> ReasoningBudget | None:
    """The watcher of one choice, which has seen what the template began; None where nobody asks for it."""
    s = sampling
    is_wanted = s.grammar_lazy or s.reasoning_budget_tokens >= 0 or s.reasoning_control
    if not (is_wanted and s.reasoning_budget_start and any(s.reasoning_budget_ends)):
        return None
    budget = ReasoningBudget(
        start=s.reasoning_budget_start,
        ends=s.reasoning_budget_ends,
        forced=s.reasoning_budget_forced,
        n_tokens=s.reasoning_budget_tokens if s.reasoning_budget_tokens >= 0 else None,
        piece_of=piece_of,
    )
    for token in s.reasoning_budget_prefill:
        budget.accept(token)
    return budget
