"""From a log to what the decoder must do. Pure."""

from itertools import pairwise

from schemas.events import Compat, Prompt, Requested, Shifted
from schemas.generation import ChoiceTokens, Generation
from schemas.params import RANDOM_SEED, Params
from schemas.rpc import Prepared
from services.engine.protocol import Admit, ChoiceJob


def n_choices(requested: Requested) -> int:
    """Choices of a request: `n_cmpl` for each prompt."""
    return len(requested.prompts) * requested.params.n_cmpl


def draw_seeds(params: Params, n: int, random_seeds: tuple[int, ...]) -> tuple[int, ...]:
    """Concrete seeds of n choices: random ones, or the asked one, counted up per choice."""
    seed = params.sampling.seed
    if seed == RANDOM_SEED:
        return random_seeds[:n]
    return tuple((seed + i) % RANDOM_SEED for i in range(n))


def build_admit(
    requested: Requested,
    collected: dict[int, ChoiceTokens],
    seeds: tuple[int, ...],
    *,
    replay: str = "fast",
) -> Admit | None:
    """The job for all choices that have not ended; None when there is none left.

    seeds: per choice, used where the log does not say which one the first attempt had. replay: see
    ChoiceJob.
    """
    jobs = tuple(
        _choice_job(requested.prompts, requested.params, choice, collected, seeds[choice], replay)
        for choice in range(n_choices(requested))
        if choice not in collected or collected[choice].end is None
    )
    if not jobs:
        return None
    return Admit(generation_id=requested.generation_id, choices=jobs, params=requested.params)


def first_admit(
    generation_id: str, prepared: Prepared, seeds: tuple[int, ...], *, replay: str = "fast"
) -> Admit:
    """The same for a generation that nobody has begun, as soon as it is known what it will ask for."""
    jobs = tuple(
        _choice_job(prepared.prompts, prepared.params, choice, {}, seed, replay)
        for choice, seed in enumerate(seeds)
    )
    return Admit(generation_id=generation_id, choices=jobs, params=prepared.params)


def is_job_of(admit: Admit, requested: Requested) -> bool:
    """Whether a first attempt at that request does what `admit` says, whatever its random seeds."""
    asked = [prompt.ids for prompt in requested.prompts for _ in range(requested.params.n_cmpl)]
    return admit.params == requested.params and [job.prompt for job in admit.choices] == asked


def _choice_job(
    prompts: tuple[Prompt, ...],
    params: Params,
    choice: int,
    collected: dict[int, ChoiceTokens],
    seed: int,
    replay: str,
) -> ChoiceJob:
    tokens = collected.get(choice) or ChoiceTokens()
    start = tokens.start
    leader = collected.get(choice - choice % params.n_cmpl) or tokens
    return ChoiceJob(
        choice=choice,
        prompt=prompts[choice // params.n_cmpl].ids,
        seed=seed if start is None else start.seed,
        emitted=tuple(tokens.ids),
        texts=tuple(tokens.texts),
        draws=tuple(tokens.draws),
        xtc_draws=tuple(tokens.xtc_draws),
        mu=tokens.mu,
        controlled=tuple(event.index for event in tokens.controls),
        chunks=prompt_chunks(tokens, leader),
        n_cached_first=0 if start is None else start.n_cached,
        shifts=known_shifts(tokens),
        replay=replay,
        spent_predicted_us=tokens.elapsed_us,
        spent_prompt_us=tokens.prompt_us,
    )


def prompt_chunks(tokens: ChoiceTokens, leader: ChoiceTokens) -> tuple[int, ...]:
    """In which pieces the prompt was decoded, after the cached tokens.

    leader: the choice whose prompt was copied, or itself. `started` tells the plan, `progress` what
    became of it where others were generating meanwhile.
    """
    if tokens.start is None:
        return ()
    if not leader.progress:
        return tokens.start.chunks
    bounds = (tokens.start.n_cached, *leader.progress, tokens.start.n_prompt)
    return tuple(end - start for start, end in pairwise(bounds))


def known_shifts(tokens: ChoiceTokens) -> tuple[Shifted, ...]:
    """The shifts before the tokens that the log holds, or before the next one; each once.

    One that comes later was logged by an attempt whose tokens were not: it will happen again.
    """
    known = {shift.index: shift for shift in tokens.shifts if shift.index <= len(tokens.ids)}
    return tuple(known[index] for index in sorted(known))


def may_continue(state: Generation, compat: Compat) -> bool:
    """Whether an engine with this digest may grow the log: nobody has begun, or an equal one."""
    return state.first_started is None or state.first_started.compat == compat
