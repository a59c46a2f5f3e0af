"""Who waits for slots, and who gets which. Pure."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from services.engine.slots import Slot, SlotTable, Work, choose_slot, common_prefix

REPLAY_CHUNK = 32
"""Emitted tokens per chunk when a generation is continued: bit-equal to one by one in the exact range."""
EXACT_CELLS = 512
"""Below so many KV cells a continued choice gets the logits that it would have had undisturbed."""


@dataclass(frozen=True, kw_only=True)
class Need:
    """One choice that wants a slot. emitted, chunks, n_cached_first: as in ChoiceJob. is_exact: its
    emitted tokens are decoded one by one."""

    choice: int
    prompt: tuple[int, ...]
    emitted: tuple[int, ...] = ()
    chunks: tuple[int, ...] = ()
    n_cached_first: int = 0
    is_exact: bool = False


@dataclass(frozen=True, kw_only=True)
class Request:
    """A generation that wants its slots, all at once. id_slot: the one it must have, or −1."""

    generation_id: str
    needs: tuple[Need, ...]
    id_slot: int = -1
    can_reuse: bool = True


@dataclass(frozen=True, kw_only=True)
class Seat:
    """One choice got `slot`. n_cached: prompt tokens that are reused. chunks: of the other ones."""

    choice: int
    slot: int
    n_cached: int
    chunks: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Leader:
    """The first choice of a generation: others with the same prompt copy its cells."""

    prompt: tuple[int, ...]
    seat: Seat


class Seating:
    """The queue of generations. chunk, max_chunk: prompt tokens per batch, planned and at most.

    has_float_weights: rows of one batch differ in the last bits from rows alone, so that emitted
    tokens are replayed one by one where that makes a difference.
    """

    def __init__(
        self, table: SlotTable, *, chunk: int, max_chunk: int, has_float_weights: bool = False
    ) -> None:
        self._table = table
        self._chunk = chunk
        self._max_chunk = max_chunk
        self._has_float_weights = has_float_weights
        self._queue: list[Request] = []

    def __len__(self) -> int:
        return len(self._queue)

    def admit(self, request: Request) -> None:
        assert 0 < len(request.needs) <= len(self._table.slots), "more choices than slots"
        self._queue.append(request)

    def forget(self, generation_id: str) -> None:
        self._queue = [r for r in self._queue if r.generation_id != generation_id]

    def seat_next(self) -> tuple[str, tuple[Seat, ...]] | None:
        """Seat the first in the queue that can be: its id and seats, in order of its choices.

        Nobody overtakes one that waits for several slots. One that waits for a certain slot keeps
        that slot for itself and lets others have the rest.
        """
        kept: set[int] = set()
        for request in self._queue:
            free = [slot for slot in self._table.free() if slot.id not in kept]
            if is_bound := self._is_bound(request):
                free = [slot for slot in free if slot.id == request.id_slot]
                kept.add(request.id_slot)
            if len(free) >= len(request.needs):
                self._queue.remove(request)
                return request.generation_id, tuple(self._seats(request, free))
            if not is_bound:
                break
        return None

    def _is_bound(self, request: Request) -> bool:
        """Whether it must have a certain slot; one that does not exist means any (llama-server)."""
        return len(request.needs) == 1 and 0 <= request.id_slot < len(self._table.slots)

    def _seats(self, request: Request, free: list[Slot]) -> Iterator[Seat]:
        leader: Leader | None = None
        for need in request.needs:
            if leader is not None and need.prompt == leader.prompt and not need.emitted:
                seat = self._follow(request, need, free[0], leader.seat)
            else:
                seat = self._sit(request, need, choose_slot(free, list(need.prompt)))
                if leader is None and not need.emitted:
                    leader = Leader(prompt=need.prompt, seat=seat)
            free.remove(self._table.slots[seat.slot])
            yield seat

    def _sit(self, request: Request, need: Need, slot: Slot) -> Seat:
        """A continued choice reuses nothing: its cells must be computed as they were at first."""
        can_reuse = request.can_reuse and not need.emitted
        self._table.keep(slot, _reusable(slot, need) if can_reuse else 0)
        chunks = self._prompt_chunks(need, len(slot.cached))
        slot.work = Work(
            generation_id=request.generation_id,
            choice=need.choice,
            tokens=need.prompt + need.emitted[:-1],
            chunks=deque(chunks + self._replay_chunks(need)),
            resume_id=need.emitted[-1] if need.emitted else None,
            turn=self._table.tick(),
        )
        return Seat(choice=need.choice, slot=slot.id, n_cached=len(slot.cached), chunks=chunks)

    def _follow(self, request: Request, need: Need, slot: Slot, leader: Seat) -> Seat:
        self._table.keep(slot, 0)
        slot.work = Work(
            generation_id=request.generation_id,
            choice=need.choice,
            tokens=need.prompt,
            chunks=deque(),
            leader=leader.slot,
            turn=self._table.tick(),
        )
        return Seat(
            choice=need.choice, slot=slot.id, n_cached=leader.n_cached, chunks=leader.chunks
        )

    def _prompt_chunks(self, need: Need, n_cached: int) -> tuple[int, ...]:
        """Chunk sizes of the prompt; a continued choice repeats those of its first attempt if it can."""
        n_left = len(need.prompt) - n_cached
        first = split(need.n_cached_first, self._chunk) + need.chunks
        fits = sum(first) == n_left and all(0 < size <= self._max_chunk for size in first)
        return first if need.emitted and fits else split(n_left, self._chunk)

    def _replay_chunks(self, need: Need) -> tuple[int, ...]:
        """Chunk sizes of all emitted tokens but the last, which is decoded as if just sampled."""
        is_equal = len(need.prompt) + len(need.emitted) <= EXACT_CELLS
        is_single = need.is_exact or (is_equal and self._has_float_weights)
        size = 1 if is_single else REPLAY_CHUNK
        return split(max(0, len(need.emitted) - 1), size)


def split(n_tokens: int, chunk: int) -> tuple[int, ...]:
    """`n_tokens` in chunks: full ones and a rest."""
    full, rest = divmod(n_tokens, chunk)
    return (chunk,) * full + ((rest,) if rest else ())


def _reusable(slot: Slot, need: Need) -> int:
    """Cached tokens to keep. At least one of the prompt is decoded again: its logits are needed."""
    return min(common_prefix(slot.cached, list(need.prompt)), len(need.prompt) - 1)
