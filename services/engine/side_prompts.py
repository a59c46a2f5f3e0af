"""Long prompts that another context decodes while the slots go on generating. Pure.

In one context a step with a piece of a long prompt takes many times as long as one without. A second
context with threads of its own leaves the first one alone: whoever generates has fewer threads, and
nothing else to wait for. What it computed is then put into the slot, all but the last token, whose
logits are needed in the slot's own context.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from services.engine.checkpoint_maker import CheckpointMaker
from services.engine.kernels import TILE_ROWS, split
from services.engine.slots import Slot, SlotTable, Work
from services.engine.states import State

PIECE = 2 * TILE_ROWS
"""Prompt tokens per call: whoever comes or goes meanwhile waits for one."""
N_TAIL = 1
"""Tokens that are left for the slot's own context."""


@dataclass(kw_only=True, eq=False)
class SidePrompt:
    """What is to be decoded aside for `slot`.

    work: what it is a part of. tokens: the prompt. n_held: how many of the first ones the slot holds,
    `held`: their cells, until they are where they are needed. pieces: sizes of the calls for the next ones.
    """

    slot: int
    work: Work
    tokens: Sequence[int]
    n_held: int
    held: State | None
    pieces: tuple[int, ...]

    @property
    def checkpoint_at(self) -> tuple[int, ...]:
        """After how many tokens to copy what cannot be cut."""
        return self.work.checkpoint_at

    @property
    def n_end(self) -> int:
        """Tokens that the slot will hold."""
        return self.n_held + sum(self.pieces)


class SidePrompts:
    """Which prompts go aside, and what becomes of them. is_on: any do. n_short: those up to it do not.

    max_piece: tokens per call at most.
    """

    def __init__(
        self,
        table: SlotTable,
        checkpoints: CheckpointMaker,
        *,
        is_on: bool,
        n_short: int,
        max_piece: int,
    ) -> None:
        self._table = table
        self._checkpoints = checkpoints
        self._is_on = is_on
        self._n_short = n_short
        self._piece = max(1, min(PIECE, max_piece))

    def wants(self, slot: Slot) -> bool:
        """Whether a slot's prompt is none for its own context while others generate."""
        work = slot.work
        if not self._is_on or work is None or work.stays or work.is_repeated or work.shifts:
            return False
        is_long = sum(work.chunks) > self._n_short and work.n_done == len(slot.cached)
        return work.is_aside or is_long

    def next(self) -> SidePrompt | None:
        """The next one to begin with, if somebody generates."""
        slots = self._table.slots
        if not self._is_on or not any(slot.is_generating for slot in slots):
            return None
        if not self._table.memory.is_settled:
            return None  # those who generate decode in a moment
        waiting = [slot for slot in slots if self.wants(slot) and not slot.working().is_aside]
        waiting.sort(key=lambda slot: slot.working().turn)
        begun = (self._begin(slot) for slot in waiting)
        return next((prompt for prompt in begun if prompt is not None), None)

    def is_wanted(self, prompt: SidePrompt) -> bool:
        """Whether the slot still waits for it."""
        return self._table.slots[prompt.slot].work is prompt.work and prompt.work.is_aside

    def land(self, prompt: SidePrompt, state: State, copies: Mapping[int, State]) -> bool:
        """Put cells of a wanted one into its slot; False, and it holds none, if there is no room.

        copies: for checkpoints, by the number of tokens.
        """
        slot = self._table.slots[prompt.slot]
        if not self._table.memory.load(slot.id, state):
            slot.cached, slot.checkpoints = [], []
            return False
        work = prompt.work
        work.is_aside, work.turn = False, self._table.tick()
        work.n_done = prompt.n_end
        work.n_new = len(work.tokens) - work.n_done
        work.chunks = deque([work.n_new])
        slot.cached = list(prompt.tokens[: prompt.n_end])
        for n_tokens, copy in copies.items():
            self._checkpoints.add(slot, n_tokens, copy)
        return True

    def give_up(self, prompt: SidePrompt) -> None:
        """It cannot be decoded aside: its own context does it after all."""
        prompt.work.is_aside, prompt.work.stays = False, True

    def _begin(self, slot: Slot) -> SidePrompt | None:
        work, n_held = slot.working(), len(slot.cached)
        held = self._table.memory.save(slot.id) if n_held else None
        if n_held and held is None:
            work.stays = True
            return None
        work.is_aside = True
        return SidePrompt(
            slot=slot.id,
            work=work,
            tokens=work.tokens,
            n_held=n_held,
            held=held,
            pieces=self._pieces(work),
        )

    def _pieces(self, work: Work) -> tuple[int, ...]:
        *first, last = work.chunks
        chunks = (*first, last - N_TAIL)
        return tuple(size for chunk in chunks for size in split(chunk, self._piece))
