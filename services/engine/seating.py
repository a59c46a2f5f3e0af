"""Who waits for slots, and who gets which. Pure."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from services.engine.checkpoint_maker import CheckpointMaker
from services.engine.context_shift import Shift, ShiftPlan, plan_of
from services.engine.kernels import split
from services.engine.replay import Logged, Replay, plan_replay
from services.engine.reuse import Reuse
from services.engine.slots import Slot, SlotTable, Work


@dataclass(frozen=True, kw_only=True)
class Need:
    """One choice that wants a slot. emitted, chunks, n_cached_first, shifts: as in ChoiceJob.
    is_exact: its emitted tokens are decoded one by one."""

    choice: int
    prompt: tuple[int, ...]
    emitted: tuple[int, ...] = ()
    chunks: tuple[int, ...] = ()
    n_cached_first: int = 0
    shifts: tuple[Shift, ...] = ()
    is_exact: bool = False


@dataclass(frozen=True, kw_only=True)
class Request:
    """Choices of one generation that want their slots all at once. id_slot: the one it must have, or −1.

    n_cache_reuse, n_keep, n_discard: as in Limits. n_cmpl: choices per prompt, also those that have
    ended.
    """

    generation_id: str
    needs: tuple[Need, ...]
    id_slot: int = -1
    can_reuse: bool = True
    n_cache_reuse: int = 0
    n_keep: int = 0
    n_discard: int = 0
    n_cmpl: int = 1


@dataclass(frozen=True, kw_only=True)
class Seat:
    """One choice got `slot`. n_cached: prompt tokens that are reused. chunks: of the other ones.
    can_shift: a full slot is no end."""

    choice: int
    slot: int
    n_cached: int
    chunks: tuple[int, ...]
    can_shift: bool = False


@dataclass(frozen=True, kw_only=True)
class SeatingRules:
    """chunk, max_chunk: prompt tokens per batch, planned and at most. n_ctx_slot: tokens of a slot.

    has_float_weights: rows of one batch differ in the last bits from rows alone, so that emitted
    tokens are replayed one by one where that makes a difference. is_shifting: full slots forget
    their oldest tokens. has_bos: prompts begin with a token of the model's own.
    """

    chunk: int
    max_chunk: int
    n_ctx_slot: int
    has_float_weights: bool = False
    is_shifting: bool = False
    has_bos: bool = False


@dataclass(frozen=True, kw_only=True)
class Leader:
    """The first choice of a generation: others with the same prompt copy its cells."""

    prompt: tuple[int, ...]
    seat: Seat


class Seating:
    """The queue of generations."""

    def __init__(
        self, table: SlotTable, reuse: Reuse, maker: CheckpointMaker, rules: SeatingRules
    ) -> None:
        self._table = table
        self._reuse = reuse
        self._maker = maker
        self._rules = rules
        self._queue: list[Request] = []

    def __len__(self) -> int:
        return len(self._queue)

    def __contains__(self, generation_id: str) -> bool:
        return any(request.generation_id == generation_id for request in self._queue)

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
                seat = self._sit(request, need, free)
                if leader is None and not need.emitted:
                    leader = Leader(prompt=need.prompt, seat=seat)
            free.remove(self._table.slots[seat.slot])
            yield seat

    def _sit(self, request: Request, need: Need, free: list[Slot]) -> Seat:
        slot = self._slot_for(request, need, free)
        replay = self._replay(need, len(slot.cached))
        n_cached, n_prompt = len(slot.cached), len(need.prompt)
        shift_plan = self._shift_plan(request, need)
        slot.work = Work(
            generation_id=request.generation_id,
            choice=need.choice,
            tokens=replay.tokens,
            chunks=deque(replay.chunks),
            n_done=n_cached,
            n_new=len(replay.tokens) - n_cached,
            is_repeated=replay.is_repeated,
            shifts=deque(replay.shifts),
            resume_id=need.emitted[-1] if need.emitted else None,
            turn=self._table.tick(),
            shift_plan=shift_plan,
            checkpoint_at=self._maker.places(n_prompt, n_cached),
        )
        return Seat(
            choice=need.choice,
            slot=slot.id,
            n_cached=n_cached,
            chunks=self._prompt_chunks(need, n_cached),
            can_shift=shift_plan is not None,
        )

    def _slot_for(self, request: Request, need: Need, free: list[Slot]) -> Slot:
        """The best of `free`, with what it can reuse. A continued choice reuses nothing: its cells must
        be computed as they were at first."""
        prompt = list(need.prompt)
        slot, is_chosen = self._reuse.choose(free, prompt)
        is_chosen = is_chosen or self._is_bound(request)
        if request.can_reuse and not need.emitted:
            self._reuse.prepare(
                slot, prompt, is_chosen=is_chosen, n_cache_reuse=request.n_cache_reuse
            )
        else:
            self._reuse.renounce(slot, prompt, is_chosen=is_chosen)
        return slot

    def _follow(self, request: Request, need: Need, slot: Slot, leader: Seat) -> Seat:
        self._reuse.clear(slot)
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

    def _shift_plan(self, request: Request, need: Need) -> ShiftPlan | None:
        """None for choices that share a prompt, and so cells: these cannot be moved for one of them."""
        n_sharing = sum(other.prompt == need.prompt for other in request.needs)
        if not self._rules.is_shifting or max(n_sharing, request.n_cmpl) > 1:
            return None
        n_prompt, has_bos = len(need.prompt), self._rules.has_bos
        return plan_of(request.n_keep, request.n_discard, n_prompt, has_bos=has_bos)

    def _replay(self, need: Need, n_cached: int) -> Replay:
        chunks = self._prompt_chunks(need, n_cached)
        if not need.emitted:
            return Replay(tokens=need.prompt, chunks=chunks)
        rules = self._rules
        logged = Logged(
            prompt=need.prompt,
            prompt_chunks=chunks,
            emitted=need.emitted,
            shifts=need.shifts,
            is_exact=need.is_exact,
        )
        return plan_replay(
            logged,
            n_ctx=rules.n_ctx_slot,
            chunk=rules.chunk,
            has_float_weights=rules.has_float_weights,
        )

    def _prompt_chunks(self, need: Need, n_cached: int) -> tuple[int, ...]:
        """Chunk sizes of the prompt; a continued choice repeats those of its first attempt if it can."""
        n_left, chunk = len(need.prompt) - n_cached, self._rules.chunk
        if need.emitted:
            first = split(need.n_cached_first, chunk) + need.chunks
            if sum(first) == n_left and all(0 < size <= self._rules.max_chunk for size in first):
                return first
        return self._fresh_chunks(len(need.prompt), n_cached)

    def _fresh_chunks(self, n_prompt: int, n_cached: int) -> tuple[int, ...]:
        """Full chunks and a rest; also where checkpoints are made, a chunk ends."""
        chunks: tuple[int, ...] = ()
        start = n_cached
        for end in (*self._maker.places(n_prompt, n_cached), n_prompt):
            chunks += split(end - start, self._rules.chunk)
            start = end
        return chunks
