"""Context shift: a full slot forgets its oldest tokens and goes on. llama-server's amounts. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

MIN_LEFT = 4
"""So many cells at least do not belong to what is kept for ever."""


@dataclass(frozen=True, kw_only=True)
class Shift:
    """The tokens from `n_keep` on are dropped, `n_discard` of them; what is behind them moves forward.

    at: of one that is to be repeated: after so many tokens of prompt and answer were decoded.
    """

    n_keep: int
    n_discard: int
    at: int = 0

    def apply(self, cells: list[int]) -> None:
        """Drop them from the list of what a slot holds."""
        del cells[self.n_keep : self.n_keep + self.n_discard]


@dataclass(frozen=True, kw_only=True)
class ShiftPlan:
    """What a choice wants: n_keep tokens kept at the front, n_discard dropped, 0 for half of the rest."""

    n_keep: int
    n_discard: int = 0

    def shift(self, n_cells: int, n_ctx: int) -> Shift:
        """The shift of a slot that holds `n_cells` tokens, which is as good as full."""
        n_keep = min(n_ctx - MIN_LEFT, self.n_keep)
        n_left = n_cells - n_keep
        n_discard = self.n_discard or n_left // 2
        return Shift(n_keep=n_keep, n_discard=min(max(n_discard, 0), max(0, n_left - 1)))


def plan_of(n_keep: int, n_discard: int, n_prompt: int, *, has_bos: bool) -> ShiftPlan:
    """A request's wishes. n_keep: below 0 all of the prompt; has_bos: a first token is kept besides."""
    kept = n_prompt if n_keep < 0 else n_keep
    return ShiftPlan(n_keep=kept + has_bos, n_discard=n_discard)


def is_full(n_cells: int, n_ctx: int) -> bool:
    """Whether there is no room for the token that was sampled and another one."""
    return n_cells + 1 >= n_ctx


def shifted(tokens: Sequence[int], shifts: Sequence[Shift]) -> list[int]:
    """What a slot holds after `tokens` were decoded with these shifts between them."""
    cells: list[int] = []
    done = 0
    for shift in shifts:
        cells += tokens[done : shift.at]
        shift.apply(cells)
        done = shift.at
    return cells + list(tokens[done:])
