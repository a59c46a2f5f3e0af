"""Between the front's words and the scheduler's. Pure."""

from itertools import groupby

from schemas.events import ChoiceStart
from services.engine.context_shift import Shift
from services.engine.protocol import Admit, ChoiceJob
from services.engine.seating import Need, Request, Seat


def requests_of(admit: Admit, n_slots: int) -> list[Request]:
    """What the scheduler is to seat: all choices at once, or prompt by prompt where they need more
    slots than there are."""
    if len(admit.choices) <= n_slots:
        return [_request(admit, admit.choices)]
    prompts = groupby(admit.choices, lambda job: job.choice // admit.params.n_cmpl)
    return [_request(admit, tuple(jobs)) for _, jobs in prompts]


def _request(admit: Admit, jobs: tuple[ChoiceJob, ...]) -> Request:
    limits = admit.params.limits
    return Request(
        generation_id=admit.generation_id,
        needs=tuple(map(_need, jobs)),
        id_slot=limits.id_slot,
        can_reuse=limits.cache_prompt,
        n_cache_reuse=limits.n_cache_reuse,
        n_keep=limits.n_keep,
        n_discard=limits.n_discard,
        n_cmpl=admit.params.n_cmpl,
    )


def choice_start(job: ChoiceJob, seat: Seat) -> ChoiceStart:
    """What the log is to know of a seat."""
    return ChoiceStart(
        choice=job.choice,
        slot=seat.slot,
        seed=job.seed,
        n_prompt=len(job.prompt),
        n_cached=seat.n_cached,
        chunks=seat.chunks,
    )


def _need(job: ChoiceJob) -> Need:
    return Need(
        choice=job.choice,
        prompt=job.prompt,
        emitted=job.emitted,
        chunks=job.chunks,
        n_cached_first=job.n_cached_first,
        shifts=_shifts(job),
        is_exact=job.replay == "exact",
    )


def _shifts(job: ChoiceJob) -> tuple[Shift, ...]:
    """A shift before token `index` came when all tokens before it but the last one were decoded."""
    return tuple(
        Shift(at=len(job.prompt) + shift.index - 1, n_keep=shift.n_keep, n_discard=shift.n_discard)
        for shift in job.shifts
    )
