"""Makes checkpoints of slots while their prompts are decoded, and goes back to them. One thread."""

from services.engine import checkpoints
from services.engine.checkpoints import Checkpoint
from services.engine.slots import Slot, SlotTable
from services.engine.states import State


class CheckpointMaker:
    """n_most: per slot, 0 for none. min_step: least distance in tokens. n_ubatch: tokens."""

    def __init__(self, table: SlotTable, *, n_most: int, min_step: int, n_ubatch: int) -> None:
        self._table = table
        self._n_most = n_most
        self._min_step = min_step
        self._n_ubatch = n_ubatch

    def places(self, n_prompt: int, n_cached: int) -> tuple[int, ...]:
        """After how many tokens of a prompt to make some; none where they are of no use."""
        if not self._n_most or not self._table.memory.needs_checkpoints:
            return ()
        return checkpoints.places(n_prompt, n_cached, self._n_ubatch)

    def on_advance(self, slot: Slot) -> None:
        """A slot holds more of its prompt than before: make a checkpoint if it is to be here."""
        n_tokens = len(slot.cached)
        if n_tokens not in slot.working().checkpoint_at:
            return
        state = self._table.memory.save(slot.id, is_partial=True)
        if state is not None:
            self.add(slot, n_tokens, state)

    def add(self, slot: Slot, n_tokens: int, state: State) -> None:
        """Keep what was copied when a slot held so many tokens."""
        generation_id = slot.working().generation_id
        new = Checkpoint(n_tokens=n_tokens, generation_id=generation_id, state=state)
        slot.checkpoints = checkpoints.added(
            slot.checkpoints, new, n_most=self._n_most, min_step=self._min_step
        )

    def go_back(self, slot: Slot, n_tokens: int) -> int:
        """Make a slot fit to go on after `n_tokens` or fewer of its tokens; after how many it can."""
        memory = self._table.memory
        if n_tokens == 0 or memory.can_keep(slot.id, n_tokens):
            return n_tokens
        found = checkpoints.newest(slot.checkpoints, n_tokens)
        if found is None or not memory.load(slot.id, found.state, is_partial=True):
            return 0
        return found.n_tokens
