"""Saving, restoring and erasing slots: done as soon as the slot is free. One thread."""

import logging
import time
from collections.abc import Sequence
from typing import Protocol

from schemas.errors import Problem, RequestError
from services.engine.errors import SlotFileError
from services.engine.protocol import ActOnSlot, SlotActed
from services.engine.scheduler import Scheduler

log = logging.getLogger(__name__)

SAVE, RESTORE, ERASE = "save", "restore", "erase"


class SlotFiles(Protocol):
    """A memory that can write slots to files; see `SlotMemory`. Raises SlotFileError."""

    def save_file(self, slot: int, path: str, tokens: Sequence[int]) -> int: ...
    def load_file(self, slot: int, path: str) -> tuple[list[int], int]: ...


class SlotActions:
    """n_vocab: ids are below it. n_ctx_slot: most tokens of a slot."""

    def __init__(
        self, scheduler: Scheduler, files: SlotFiles, *, n_vocab: int, n_ctx_slot: int
    ) -> None:
        self._scheduler = scheduler
        self._files = files
        self._n_vocab = n_vocab
        self._n_ctx_slot = n_ctx_slot
        self._waiting: list[ActOnSlot] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, action: ActOnSlot) -> None:
        """Do it when its slot is free. Ids of slots wrap around, as llama-server's do."""
        self._waiting.append(action)

    def run_due(self) -> list[SlotActed]:
        """Do what can be done now, in order; the answers."""
        waiting, self._waiting = self._waiting, []
        done: list[SlotActed] = []
        for action in waiting:
            if self._scheduler.slots[self._slot(action)].work is None:
                done.append(self._answer(action))
            else:
                self._waiting.append(action)
        return done

    def _slot(self, action: ActOnSlot) -> int:
        return action.slot % len(self._scheduler.slots)

    def _answer(self, action: ActOnSlot) -> SlotActed:
        slot, start_ns, problem = self._slot(action), time.monotonic_ns(), None
        n_tokens = n_bytes = 0
        try:
            n_tokens, n_bytes = self._do(action, slot)
        except SlotFileError as error:
            log.warning("action=slot_%s_failed slot=%d error=%s", action.action, slot, error)
            problem = _problem(action, str(error))
        return SlotActed(
            id=action.id,
            slot=slot,
            n_held=len(self._scheduler.slots[slot].cached),
            n_tokens=n_tokens,
            n_bytes=n_bytes,
            elapsed_us=(time.monotonic_ns() - start_ns) // 1000,
            problem=problem,
        )

    def _do(self, action: ActOnSlot, slot: int) -> tuple[int, int]:
        """(tokens, bytes) that it was about."""
        if action.action == SAVE:
            tokens = self._scheduler.slots[slot].cached
            return len(tokens), self._files.save_file(slot, action.path, tokens)
        if action.action == RESTORE:
            return self._restore(slot, action.path)
        return self._scheduler.erase(slot), 0

    def _restore(self, slot: int, path: str) -> tuple[int, int]:
        """A slot that cannot be restored is empty afterwards."""
        self._scheduler.erase(slot)
        try:
            tokens, n_bytes = self._files.load_file(slot, path)
            self._check(tokens)
        except SlotFileError:
            self._scheduler.erase(slot)
            raise
        self._scheduler.restore(slot, tokens)
        return len(tokens), n_bytes

    def _check(self, tokens: list[int]) -> None:
        if len(tokens) > self._n_ctx_slot:
            raise SlotFileError("Restored prompt does not fit in the slot context")
        if tokens and not (min(tokens) >= 0 and max(tokens) < self._n_vocab):
            raise SlotFileError("Invalid tokens in slot save file")


def _problem(action: ActOnSlot, message: str) -> Problem:
    if action.action == RESTORE:
        return RequestError.invalid(f"Unable to restore slot: {message}").problem
    return RequestError.server(message).problem
