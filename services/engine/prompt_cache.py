"""Prompts that lost their slot, kept in RAM with their cells (`--cache-ram`). Pure over opaque states.

llama-server's rules: a prompt that another one contains is not kept twice; the oldest go when there
is no room; one is taken out when it is a better beginning for a new prompt than what the slot holds.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from services.engine.checkpoints import Checkpoint
from services.engine.common_prefix import common_prefix
from services.engine.states import State

MIB = 1024 * 1024
MIN_PART = 0.25
"""A kept prompt is not taken out for less than this part of it."""


@dataclass(frozen=True, kw_only=True)
class Kept:
    """A prompt with everything that makes a slot continue from it."""

    tokens: list[int]
    state: State
    checkpoints: tuple[Checkpoint, ...] = ()

    @property
    def n_bytes(self) -> int:
        return self.state.nbytes + _n_bytes(self.checkpoints)


class PromptCache:
    """ram_mib: limit in MiB, −1 for none. n_tokens: so many may be kept in any case that fits in."""

    def __init__(self, ram_mib: int, n_tokens: int) -> None:
        self._max_bytes = ram_mib * MIB if ram_mib >= 0 else None
        self._max_tokens = n_tokens
        self._kept: list[Kept] = []

    @property
    def n_bytes(self) -> int:
        return sum(kept.n_bytes for kept in self._kept)

    def __len__(self) -> int:
        return len(self._kept)

    def put(
        self,
        tokens: Sequence[int],
        checkpoints: Sequence[Checkpoint],
        n_bytes: int,
        save: Callable[[], State | None],
    ) -> bool:
        """Keep what `save` returns, which will have `n_bytes`; False if it is not worth it or cannot be."""
        if (
            not tokens
            or self._contains(tokens)
            or not self._makes_room(tokens, checkpoints, n_bytes)
        ):
            return False
        if (state := save()) is None:
            return False
        new = Kept(tokens=list(tokens), state=state, checkpoints=tuple(checkpoints))
        self._kept.append(new)
        self._trim()
        return True

    def take_better(self, cached: Sequence[int], prompt: Sequence[int]) -> Kept | None:
        """Take out what begins `prompt` better than `cached` does, and is used to a larger part."""
        best, found = _worth(cached, prompt), None
        for kept in self._kept:
            worth = _worth(kept.tokens, prompt)
            if worth[0] >= MIN_PART and worth[0] > best[0] and worth[1] > best[1]:
                best, found = worth, kept
        if found is not None:
            self._kept.remove(found)
        return found

    def _contains(self, tokens: Sequence[int]) -> bool:
        return any(common_prefix(kept.tokens, tokens) == len(tokens) for kept in self._kept)

    def _makes_room(
        self, tokens: Sequence[int], checkpoints: Sequence[Checkpoint], n_bytes: int
    ) -> bool:
        n_new = n_bytes + _n_bytes(checkpoints)
        if self._max_bytes is not None and n_new > self._max_bytes:
            return False
        self._kept = [k for k in self._kept if common_prefix(k.tokens, tokens) < len(k.tokens)]
        while self._kept and self._max_bytes is not None and self.n_bytes + n_new > self._max_bytes:
            del self._kept[0]
        return True

    def _trim(self) -> None:
        """As many tokens as fit into the memory by their average size, or `n_tokens`, if more."""
        n_tokens = sum(len(kept.tokens) for kept in self._kept)
        if self._max_bytes is None:
            most = self._max_tokens
        else:
            per_token = max(1.0, self.n_bytes / max(1, n_tokens))
            most = max(self._max_tokens, int(self._max_bytes / per_token))
        while len(self._kept) > 1 and n_tokens > most:
            n_tokens -= len(self._kept.pop(0).tokens)


def _worth(tokens: Sequence[int], prompt: Sequence[int]) -> tuple[float, float]:
    """(part of the kept tokens that is used, part of the prompt that is there)."""
    if not tokens:
        return -1.0, 0.0
    shared = common_prefix(tokens, prompt)
    return shared / len(tokens), shared / len(prompt)


def _n_bytes(checkpoints: Sequence[Checkpoint]) -> int:
    return sum(checkpoint.state.nbytes for checkpoint in checkpoints)
