"""What a slot keeps of earlier work for a new prompt: its own cells, or those of a prompt in RAM.

llama-server's rules. One thread; pure but for the memory behind the table.
"""

from collections.abc import Sequence

from services.engine import checkpoints
from services.engine.cache_reuse import find_moves, moved
from services.engine.caching import Caching
from services.engine.checkpoint_maker import CheckpointMaker
from services.engine.common_prefix import common_prefix
from services.engine.prompt_cache import PromptCache
from services.engine.slots import Slot, SlotTable, choose_slot

KEPT_PART = 0.5
"""A slot of whose tokens less is used is looked after: they go to RAM, better ones may come back."""


class Reuse:
    """n_ctx: tokens over all slots. notes: what was done to prompts in RAM, in words, for the log."""

    def __init__(
        self, table: SlotTable, caching: Caching, maker: CheckpointMaker, *, n_ctx: int
    ) -> None:
        self._table = table
        self._caching = caching
        self._maker = maker
        self._ram = PromptCache(caching.ram_mib, n_ctx) if caching.ram_mib else None
        self.notes: list[str] = []
        if self._saves_idle:
            self.notes.append(
                "idle slots will be saved to prompt cache __TEST_TAG_CACHE_IDLE_SLOTS_ENABLED__"
            )

    def choose(self, free: Sequence[Slot], prompt: list[int]) -> tuple[Slot, bool]:
        """A free slot for `prompt`, and whether it was chosen for what it holds."""
        return choose_slot(free, prompt, self._caching.similarity)

    def prepare(
        self, slot: Slot, prompt: list[int], *, is_chosen: bool, n_cache_reuse: int = 0
    ) -> None:
        """Let a slot hold as much of the beginning of `prompt` as can be had, and nothing else.

        n_cache_reuse: pieces of so many tokens and more may be moved, 0 none.
        """
        if self._is_worth_exchange(slot, prompt, is_chosen=is_chosen):
            self._exchange(slot, prompt)
        n_kept = 0 if self._table.is_leading(slot) else self._fit(slot, prompt, n_cache_reuse)
        self._table.keep(slot, n_kept)

    def renounce(self, slot: Slot, prompt: list[int], *, is_chosen: bool) -> None:
        """Empty a slot for a `prompt` that may reuse nothing; RAM gets what it would get for any other."""
        if self._is_worth_exchange(slot, prompt, is_chosen=is_chosen):
            self._save(slot)
        self._table.keep(slot, 0)

    def clear(self, slot: Slot) -> None:
        """Empty a slot; what it held goes to RAM."""
        self._save(slot)
        self._table.keep(slot, 0)

    def save_idle(self) -> None:
        """Copy idle slots to RAM, and empty them where others can use the room."""
        if not self._saves_idle:
            return
        for slot in self._table.free():
            if slot.cached and self._save(slot):
                self.notes.append(f"idle_slot_saved slot={slot.id} __TEST_TAG_CACHE_IDLE_SLOT__")
            if slot.cached and self._caching.is_unified:
                self._table.keep(slot, 0)

    @property
    def _saves_idle(self) -> bool:
        return self._ram is not None and self._caching.saves_idle

    def _is_worth_exchange(self, slot: Slot, prompt: list[int], *, is_chosen: bool) -> bool:
        if not is_chosen:
            return True
        shared = common_prefix(slot.cached, prompt)
        n_useful = shared if shared > self._caching.similarity * len(prompt) else 0
        return n_useful < KEPT_PART * len(slot.cached)

    def _exchange(self, slot: Slot, prompt: list[int]) -> None:
        if self._ram is None:
            return
        self.notes.append(f"updating prompt cache slot={slot.id} n_kept={len(self._ram)}")
        self._save(slot)
        kept = self._ram.take_better(slot.cached, prompt)
        if kept is None:
            return
        self._table.keep(slot, 0)
        if self._table.memory.load(slot.id, kept.state):
            slot.cached, slot.checkpoints = list(kept.tokens), list(kept.checkpoints)

    def _save(self, slot: Slot) -> bool:
        """False if RAM has it already, or has no room."""
        memory = self._table.memory
        return (
            self._ram is not None
            and bool(slot.cached)
            and self._ram.put(
                slot.cached,
                slot.checkpoints,
                memory.n_bytes(slot.id),
                lambda: memory.save(slot.id),
            )
        )

    def _fit(self, slot: Slot, prompt: list[int], n_cache_reuse: int) -> int:
        """Tokens of the slot that can be kept. One of the prompt is decoded in any case: for its logits."""
        n_same = common_prefix(slot.cached, prompt)
        if n_cache_reuse > 0 and self._table.memory.can_move:
            n_same = self._move(slot, prompt, n_same, n_cache_reuse)
        return self._maker.go_back(slot, min(n_same, len(prompt) - 1))

    def _move(self, slot: Slot, prompt: list[int], n_same: int, n_least: int) -> int:
        moves = find_moves(slot.cached, prompt, n_same, n_least)
        for move in moves:
            self._table.memory.move(slot.id, move.source, move.target, move.n)
        if moves:
            slot.cached = moved(slot.cached, moves, n_same)
            slot.checkpoints = checkpoints.valid(slot.checkpoints, n_same)
        return n_same + sum(move.n for move in moves)
