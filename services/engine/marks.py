"""What a log keeps of sampling beside the tokens, so that it can be continued. Pure."""

from collections.abc import Sequence
from typing import NamedTuple


class Marks(NamedTuple):
    """Of one choice or of several.

    draws, xtc_draws: values taken from the random sources. mu: the last state of mirostat (its mu)
    or adaptive-p (its decaying sum), None where the sampler has none.
    """

    draws: int = 1
    xtc_draws: int = 1
    mu: float | None = None


ONE_EACH = Marks()


def total(n_tokens: int, draws: Sequence[int], xtc_draws: Sequence[int], mu: float | None) -> Marks:
    """The marks of a log's tokens; empty lists mean one draw per token."""
    return Marks(
        draws=sum(draws) if draws else n_tokens,
        xtc_draws=sum(xtc_draws) if xtc_draws else n_tokens,
        mu=mu,
    )
