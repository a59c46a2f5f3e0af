"""What GET /slots tells, as outputs come."""

from schemas.events import ChoiceEnd, ChoiceStart, Shifted, Timings
from schemas.params import Limits, Params
from services.engine.protocol import (
    ContextShifted,
    Emitted,
    Ended,
    PromptProgress,
    SlotActed,
    SlotsStarted,
)
from services.engine.slots_view import SlotsView

PARAMS = Params(limits=Limits(n_predict=10))


def started(view: SlotsView) -> None:
    start = ChoiceStart(choice=0, slot=1, seed=1, n_prompt=20, n_cached=5)
    view.on_started(SlotsStarted(generation_id="g", choices=(start,)), PARAMS)


def emitted(index: int, text: str = "a") -> Emitted:
    return Emitted(generation_id="g", choice=0, index=index, id=7, text=text)


def test_a_slot_from_start_to_end() -> None:
    view = SlotsView(2, 100)
    started(view)
    slot = view.describe()[1]
    assert (slot.is_processing, slot.n_held, slot.n_cached, slot.n_remain) == (True, 5, 5, 10)
    progress = {"n_total": 20, "n_cached": 5, "elapsed_us": 1}
    view.on_output(PromptProgress(generation_id="g", choice=0, n_processed=12, **progress))
    assert view.describe()[1].n_held == 12
    for index, text in enumerate(("a", "\n", "b")):
        view.on_output(emitted(index, text))
    slot = view.describe()[1]
    assert (slot.n_decoded, slot.n_remain, slot.has_new_line, slot.n_held) == (3, 7, True, 22)
    shift = Shifted(choice=0, index=3, n_keep=1, n_discard=9, n_past=22)
    view.on_output(ContextShifted(generation_id="g", shift=shift))
    assert view.describe()[1].n_held == 13
    end = ChoiceEnd(choice=0, stop_type="eos", n_predicted=3, n_prompt=20, timings=Timings())
    view.on_output(Ended(generation_id="g", end=end))
    slot = view.describe()[1]
    assert (slot.is_processing, slot.n_held, slot.n_decoded, slot.n_remain) == (False, 13, 0, -1)
    assert slot.params == PARAMS


def test_what_was_done_to_a_slot() -> None:
    view = SlotsView(2, 100)
    view.on_output(SlotActed(id=1, slot=0, n_held=84))
    assert [slot.n_held for slot in view.describe()] == [84, 0]
