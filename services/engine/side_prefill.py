"""Long prompts in a context and threads of their own, beside the decode loop.

A thread of its own takes what the loop gives it; it spends its time in C with the GIL released. It
tells of every piece through a queue, and wakes the loop through a file descriptor.
"""

import contextlib
import logging
import os
import queue
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from services.engine.batches import DECODED
from services.engine.side_prompts import SidePrompt
from services.engine.states import State

log = logging.getLogger(__name__)

MAX_ACTIVE = 4
"""So many prompts at once take turns; each has cells of its own, and others wait."""
CLOSE_S = 1.0


class SideContext(Protocol):
    """A context for one prompt."""

    def set_threads(self, n_threads: int) -> None: ...
    def decode(self, ids: Sequence[int], start: int) -> int: ...
    def load(self, state: State) -> bool: ...
    def save(self, *, is_partial: bool = False) -> State | None: ...
    def close(self) -> None: ...


OpenSide = Callable[[int], SideContext | None]
"""Makes a context for so many tokens; None where that is impossible. Called in the thread."""


@dataclass(frozen=True, kw_only=True)
class Progressed:
    """n_done: tokens of the prompt that are decoded, or were held."""

    prompt: SidePrompt
    n_done: int


@dataclass(frozen=True, kw_only=True)
class Prefilled:
    """All is decoded. state: for the slot. copies: for checkpoints, by the number of tokens."""

    prompt: SidePrompt
    state: State
    copies: Mapping[int, State]


@dataclass(frozen=True, kw_only=True)
class NotPrefilled:
    """Nothing came of it. result: of the decode call that failed; DECODED where none was made."""

    prompt: SidePrompt
    result: int = DECODED


SideResult = Progressed | Prefilled | NotPrefilled


@dataclass(kw_only=True, eq=False)
class _Job:
    """One prompt on its way. Only `is_abandoned` is written by the loop."""

    prompt: SidePrompt
    context: SideContext | None = None
    n_done: int = 0
    pieces: deque[int] = field(default_factory=deque[int])
    copies: dict[int, State] = field(default_factory=dict[int, State])
    is_abandoned: bool = False

    def close(self) -> None:
        if self.context is not None:
            self.context.close()


class SidePrefill:
    """The loop's side of it: called in its thread only.

    n_threads: while the slots' own context decodes, too. n_threads_alone: while it does not. on_shared:
    is told, between two steps, when its threads have to be divided, and when no longer.
    """

    def __init__(
        self,
        open_side: OpenSide,
        *,
        n_threads: int,
        n_threads_alone: int,
        on_shared: Callable[[bool], None],
    ) -> None:
        self._open_side = open_side
        self._n_threads_shared = n_threads
        self._n_threads_alone = n_threads_alone
        self._on_shared = on_shared
        self._is_shared = False
        self._n_threads = n_threads_alone
        self._jobs: dict[int, _Job] = {}
        self._given: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._results: deque[tuple[_Job, SideResult]] = deque()
        self._bell, self._rope = os.pipe()
        os.set_blocking(self._bell, False)
        os.set_blocking(self._rope, False)
        self._thread = threading.Thread(target=self._work, name="side-prefill", daemon=True)
        self._thread.start()

    def fileno(self) -> int:
        """Readable when there are results."""
        return self._bell

    @property
    def is_active(self) -> bool:
        return bool(self._jobs)

    @property
    def has_room(self) -> bool:
        return len(self._jobs) < MAX_ACTIVE

    def start(self, prompt: SidePrompt) -> None:
        """Begin with a prompt; `has_room` must say so."""
        job = _Job(prompt=prompt, n_done=prompt.n_held, pieces=deque(prompt.pieces))
        self._jobs[prompt.slot] = job
        self._given.put(job)

    def abandon(self, slot: int) -> None:
        """Nobody waits for a slot's prompt any more, if it has one here."""
        if (job := self._jobs.pop(slot, None)) is not None:
            job.is_abandoned = True

    def share(self, *, is_busy: bool) -> None:
        """Divide the threads. is_busy: the slots' own context is about to decode something."""
        self._n_threads = self._n_threads_shared if is_busy else self._n_threads_alone
        is_shared = is_busy and self.is_active
        if is_shared != self._is_shared:
            self._is_shared = is_shared
            self._on_shared(is_shared)

    def results(self) -> list[SideResult]:
        """What has happened since the last call, but for abandoned ones."""
        if not self._jobs and not self._results:
            return []
        # Also where nothing is there: the last call may have taken what was announced only after it.
        with contextlib.suppress(BlockingIOError):
            os.read(self._bell, 4096)
        found: list[SideResult] = []
        while self._results:
            job, result = self._results.popleft()
            if job.is_abandoned:
                continue
            found.append(result)
            if not isinstance(result, Progressed):
                del self._jobs[result.prompt.slot]
        return found

    def close(self) -> bool:
        """Stop the thread; False where it still computes, so that nothing must be freed."""
        for slot in list(self._jobs):
            self.abandon(slot)
        self._given.put(None)
        self._thread.join(CLOSE_S)
        return not self._thread.is_alive()

    # -- the thread ------------------------------------------------------------------------------

    def _work(self) -> None:
        active: deque[_Job] = deque()
        while self._takes(active):
            job = active.popleft()
            if self._advance(job):
                active.append(job)
            else:
                job.close()
        for job in active:
            job.close()

    def _takes(self, active: deque[_Job]) -> bool:
        """Take what was given, waiting where there is nothing to do; False once that is the end."""
        while not active or not self._given.empty():
            if (given := self._given.get()) is None:
                return False
            active.append(given)
        return True

    def _advance(self, job: _Job) -> bool:
        """One step of a prompt; whether there are more."""
        if job.is_abandoned:
            return False
        try:
            result = self._step(job)
        except MemoryError:
            result = NotPrefilled(prompt=job.prompt)
        except Exception:
            log.exception("action=side_prefill_failed")
            result = NotPrefilled(prompt=job.prompt, result=-1)
        if job.is_abandoned:
            return False
        self._results.append((job, result))
        with contextlib.suppress(BlockingIOError):  # so full that it is heard in any case
            os.write(self._rope, b".")
        return isinstance(result, Progressed)

    def _step(self, job: _Job) -> SideResult:
        prompt = job.prompt
        if job.context is None and not self._is_open(job):
            return NotPrefilled(prompt=prompt)
        context = job.context
        assert context is not None, "just opened"
        if not job.pieces:
            state = context.save()
            if state is None:
                return NotPrefilled(prompt=prompt)
            return Prefilled(prompt=prompt, state=state, copies=job.copies)
        context.set_threads(self._n_threads)
        end = job.n_done + job.pieces.popleft()
        code = context.decode(prompt.tokens[job.n_done : end], job.n_done)
        if code != DECODED:
            return NotPrefilled(prompt=prompt, result=code)
        job.n_done = end
        if end in prompt.checkpoint_at and (copy := context.save(is_partial=True)) is not None:
            job.copies[end] = copy
        return Progressed(prompt=prompt, n_done=end)

    def _is_open(self, job: _Job) -> bool:
        """Make its context, with what its slot held."""
        job.context = self._open_side(job.prompt.n_end)
        held, job.prompt.held = job.prompt.held, None  # not needed twice
        return job.context is not None and (held is None or job.context.load(held))
