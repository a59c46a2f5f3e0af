"""What /metrics counts, from a decoder's outputs."""

from schemas.errors import RequestError
from schemas.events import ChoiceEnd, ChoiceStart, Timings
from schemas.rpc import BusFigures, MetricsDescription
from services.engine.meter import Meter
from services.engine.protocol import Broken, Emitted, Ended, PromptProgress, SlotsStarted

NO_BUS = BusFigures(append_bounds_s=(), appends=(0,))


def started(name: str, n_cached: int = 0, n_choices: int = 1) -> SlotsStarted:
    choices = tuple(
        ChoiceStart(choice=i, slot=i, seed=1, n_prompt=10, n_cached=n_cached)
        for i in range(n_choices)
    )
    return SlotsStarted(generation_id=name, choices=choices)


def progress(name: str, n_processed: int) -> PromptProgress:
    return PromptProgress(
        generation_id=name,
        choice=0,
        n_total=10,
        n_cached=0,
        n_processed=n_processed,
        elapsed_us=5,
    )


def token(name: str, index: int, elapsed_us: int, prompt_us: int = 0) -> Emitted:
    return Emitted(
        generation_id=name,
        choice=0,
        index=index,
        id=7,
        elapsed_us=elapsed_us,
        prompt_us=prompt_us,
    )


def ended(name: str, n_context: int) -> Ended:
    timings = Timings()
    end = ChoiceEnd(
        choice=0, stop_type="eos", n_predicted=3, n_prompt=10, n_context=n_context, timings=timings
    )
    return Ended(generation_id=name, end=end)


def seen(meter: Meter) -> MetricsDescription:
    return meter.describe("e", NO_BUS)


def test_one_choice_from_start_to_end() -> None:
    meter = Meter()
    meter.take((started("g", n_cached=4),))
    meter.take((progress("g", 7),))
    meter.take((progress("g", 10), token("g", 0, 500, prompt_us=500)))
    assert seen(meter).n_processing == 1
    meter.take((token("g", 1, 700),))
    meter.take((token("g", 2, 1000), ended("g", n_context=12)))
    found = seen(meter)
    assert (found.n_prompt, found.n_prompt_cached, found.prompt_us) == (6, 4, 500)
    assert (found.n_predicted, found.n_predicted_steps, found.predicted_us) == (3, 2, 500)
    assert (found.n_decodes, found.n_busy_slots) == (4, 4)
    assert (found.n_context_max, found.n_processing) == (12, 0)


def test_neighbours_share_a_decode_call() -> None:
    meter = Meter()
    meter.take((started("a"), started("b")))
    meter.take((token("a", 0, 5), token("b", 0, 5)))
    assert (seen(meter).n_decodes, seen(meter).n_busy_slots) == (1, 2)


def test_what_broke_or_was_forgotten_runs_no_more() -> None:
    meter = Meter()
    meter.take((started("a", n_choices=2), started("b"), started("c")))
    assert seen(meter).n_processing == 4
    meter.take((Broken(generation_id="a", problem=RequestError.server("x").problem),))
    meter.forget("b")
    assert seen(meter).n_processing == 1
    meter.reset()
    assert seen(meter).n_processing == 0


def test_a_continued_choice_counts_its_new_tokens_only() -> None:
    meter = Meter()
    meter.take((started("g"), token("g", 30, 900, prompt_us=900), token("g", 31, 1000)))
    found = seen(meter)
    assert (found.n_predicted, found.n_predicted_steps, found.predicted_us) == (2, 1, 100)
