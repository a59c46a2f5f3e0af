"""The decode loop over a model that is a list of results: what one failure does to whom."""

import select
import threading
from collections.abc import Iterable

from schemas.errors import RequestError
from schemas.events import ChoiceEnd
from schemas.params import Params
from services.engine.batches import Batch
from services.engine.decoder.job import Choice, Place, Sampled
from services.engine.decoder.loop import Loop
from services.engine.decoder.pipe import HasFileno
from services.engine.protocol import (
    Admit,
    Broken,
    Cancel,
    ChoiceJob,
    Command,
    Control,
    Dropped,
    Emitted,
    Ended,
    Output,
    PromptProgress,
    ReasoningEnded,
    SlotsStarted,
    Stop,
)
from services.engine.scheduler import Scheduler, Sizes
from services.engine.side_prefill import SidePrefill
from tests.support.decoder_client import admit
from tests.unit.engine.noted_context import WAIT_S, NotedContext
from tests.unit.engine.recording_memory import RecordingMemory

OK, FULL, BAD = 0, 1, -3


class ScriptedModel:
    """Gives the results that it was told to, then OK."""

    n_vocab = 1000
    n_ctx_slot = 100

    def __init__(self, *results: int) -> None:
        self.results = list(results)
        self.batches: list[Batch] = []

    def decode(self, batch: Batch) -> int:
        self.batches.append(batch)
        return self.results.pop(0) if self.results else OK


class OneLetter:
    """A choice whose every token is the letter a. Seed 13 cannot be sampled, seed 14 not be opened,
    seed 15 thinks."""

    closed = 0

    def __init__(self, job: ChoiceJob, params: Params, place: Place) -> None:
        if job.seed == 14:
            raise RequestError.invalid("seed 14")
        self.choice = Choice(job, params, place)
        self.end: ChoiceEnd | None = None

    def sample(self, row: int, clock_us: int) -> tuple[Emitted, ChoiceEnd | None]:
        if self.choice.job.seed == 13:
            raise ZeroDivisionError
        return self.choice.take(Sampled(id=7, piece=b"a", is_eog=False), clock_us)

    def end_reasoning(self) -> bool:
        return self.choice.job.seed == 15

    def close(self) -> None:
        OneLetter.closed += 1


class ScriptedPipe:
    """Commands by step; Stop when they are used up and nothing runs any more."""

    def __init__(self, *steps: list[Command]) -> None:
        self.steps = list(steps)
        self.outputs: list[Output] = []

    def read_commands(self, *, can_wait: bool) -> list[Command]:
        if self.steps:
            return self.steps.pop(0)
        return [Stop()] if can_wait else []

    def wait(self, timeout_s: float | None = None, other: HasFileno | None = None) -> None:
        assert other is not None, "only for prompts that are decoded aside"
        assert select.select([other], [], [], WAIT_S)[0]

    def write(self, outputs: Iterable[Output]) -> None:
        self.outputs += outputs


def run(
    model: ScriptedModel,
    *steps: list[Command],
    side: SidePrefill | None = None,
    memory: RecordingMemory | None = None,
) -> list[Output]:
    pipe = ScriptedPipe(*steps)
    memory = memory or RecordingMemory()
    scheduler = Scheduler(Sizes(n_slots=2, has_side=side is not None), memory)
    Loop(model, OneLetter, scheduler, pipe, memory, side).run()
    return pipe.outputs


def ends(outputs: list[Output]) -> dict[str, type[Output]]:
    """How each generation ended."""
    return {o.generation_id: type(o) for o in outputs if isinstance(o, Ended | Broken)}


GOOD = admit("good", (1, 2, 3), n_predict=5)


def other(seed: int = 1, n_prompt: int = 9) -> Admit:
    return admit("other", tuple(range(n_prompt)), seed=seed, n_predict=5)


def test_an_error_while_sampling_breaks_that_generation_only() -> None:
    outputs = run(ScriptedModel(), [GOOD, other(seed=13)])
    assert ends(outputs) == {"good": Ended, "other": Broken}


def test_parameters_that_make_no_choice_break_that_generation_only() -> None:
    outputs = run(ScriptedModel(), [GOOD, other(seed=14)])
    assert ends(outputs) == {"good": Ended, "other": Broken}
    assert not any(isinstance(o, SlotsStarted) and o.generation_id == "other" for o in outputs)


def test_a_failed_batch_breaks_those_who_were_in_it() -> None:
    model = ScriptedModel(OK, BAD)
    outputs = run(model, [GOOD], [], [other()])
    assert ends(outputs) == {"good": Broken, "other": Ended}


def test_a_full_cache_takes_from_the_idle_first() -> None:
    model = ScriptedModel(*[OK] * 5, FULL)
    outputs = run(model, [GOOD], *[[]] * 5, [other()])
    assert ends(outputs) == {"good": Ended, "other": Ended}
    assert model.batches[5] == model.batches[6], "the same batch is tried again"


def test_a_full_cache_with_nobody_idle_costs_the_largest() -> None:
    outputs = run(ScriptedModel(FULL), [GOOD, other()])
    assert ends(outputs) == {"good": Ended, "other": Broken}


def test_an_ordered_end_of_reasoning_is_reported_where_there_is_any() -> None:
    order = [Control(generation_id=name, action="reasoning_end") for name in ("good", "other", "x")]
    outputs = run(ScriptedModel(), [GOOD, other(seed=15)], [], [*order])
    (ended,) = [o for o in outputs if isinstance(o, ReasoningEnded)]
    assert (ended.generation_id, ended.choice) == ("other", 0)
    before = outputs[: outputs.index(ended)]
    n_before = sum(isinstance(o, Emitted) and o.generation_id == "other" for o in before)
    assert ended.index == n_before > 0


def test_every_choice_is_closed() -> None:
    OneLetter.closed = 0
    endless = admit("endless", (1, 2), ignore_eos=True)
    run(ScriptedModel(), [GOOD, endless], [], [Cancel(generation_id="endless"), other(seed=13)])
    assert OneLetter.closed == 3


def test_a_cancel_that_wants_an_answer_gets_one_whatever_it_finds() -> None:
    endless = admit("endless", (1, 2), ignore_eos=True)
    cancels = [Cancel(generation_id=name, is_answered=True) for name in ("endless", "unknown")]
    outputs = run(ScriptedModel(), [endless], [], [*cancels, GOOD])
    dropped = [o.generation_id for o in outputs if isinstance(o, Dropped)]
    assert dropped == ["endless", "unknown"]
    after = outputs[outputs.index(Dropped(generation_id="endless")) :]
    assert not [o for o in after if isinstance(o, Emitted) and o.generation_id == "endless"]


def test_the_same_generation_is_not_admitted_twice() -> None:
    outputs = run(ScriptedModel(), [GOOD, GOOD])
    assert len([o for o in outputs if isinstance(o, SlotsStarted)]) == 1


# -- prompts that are decoded aside ------------------------------------------------------------------


def side_with(*contexts: NotedContext | None) -> SidePrefill:
    """Long prompts get these contexts, in order."""
    left = list(contexts)
    return SidePrefill(
        lambda _n: left.pop(0), n_threads=1, n_threads_alone=2, on_shared=lambda _is_shared: None
    )


class RoomyModel(ScriptedModel):
    n_ctx_slot = 1000


LONG = admit("long", tuple(range(300)), n_predict=5)


def processed(outputs: list[Output]) -> list[int]:
    return [
        o.n_processed
        for o in outputs
        if isinstance(o, PromptProgress) and o.generation_id == "long"
    ]


def rows_of_long(model: ScriptedModel) -> list[int]:
    """Rows of its slot in each batch, the chat having the other one."""
    return [len(part.ids) for batch in model.batches for part in batch.parts if part.slot == 0]


def test_a_long_prompt_beside_a_chat_is_decoded_aside() -> None:
    model, context = RoomyModel(), NotedContext()
    outputs = run(model, [GOOD], [], [LONG], side=side_with(context))
    assert ends(outputs) == {"good": Ended, "long": Ended}
    assert processed(outputs) == [128, 214, 299, 300]
    assert rows_of_long(model) == [1] * 5
    assert list(context.cells) == list(range(299))


def test_the_chat_does_not_wait_for_it() -> None:
    gate = threading.Event()
    chat = admit("good", (1, 2, 3), n_predict=50)

    class OpensGate(RoomyModel):
        def decode(self, batch: Batch) -> int:
            if len(self.batches) == 40:
                gate.set()
            return super().decode(batch)

    model = OpensGate()
    outputs = run(model, [chat], [], [LONG], side=side_with(NotedContext(gate=gate)))
    assert ends(outputs) == {"good": Ended, "long": Ended}


def test_a_failure_aside_breaks_that_generation_only() -> None:
    outputs = run(RoomyModel(), [GOOD], [], [LONG], side=side_with(NotedContext(fails=-3)))
    assert ends(outputs) == {"good": Ended, "long": Broken}


def test_without_memory_for_a_second_context_the_first_one_does_it() -> None:
    model = RoomyModel()
    outputs = run(model, [GOOD], [], [LONG], side=side_with(None))
    assert ends(outputs) == {"good": Ended, "long": Ended}
    assert sum(rows_of_long(model)) == 300 + 4


def test_one_that_is_cancelled_meanwhile_frees_its_slot() -> None:
    gate = threading.Event()
    chat = admit("good", (1, 2, 3), n_predict=9)
    steps: list[list[Command]] = [[chat], [], [LONG], [], [Cancel(generation_id="long")]]
    context = NotedContext(gate=gate)
    side = side_with(context)
    outputs = run(RoomyModel(), *steps, [other()], side=side)
    assert ends(outputs) == {"good": Ended, "other": Ended}
    gate.set()
    assert side.close()


def test_without_room_for_its_cells_it_fails_alone() -> None:
    memory = RecordingMemory()
    memory.has_room = False
    chat = admit("good", (1, 2, 3), n_predict=400)
    outputs = run(RoomyModel(), [chat], [], [LONG], side=side_with(NotedContext()), memory=memory)
    assert ends(outputs) == {"good": Ended, "long": Broken}


def test_cancelling_wakes_a_loop_that_waits_for_it() -> None:
    gate = threading.Event()

    class Waiting(ScriptedPipe):
        """Once nothing else is to be done, the front has a word."""

        def wait(self, timeout_s: float | None = None, other: HasFileno | None = None) -> None:
            self.steps.append([Cancel(generation_id="long")])

    pipe, memory = Waiting([GOOD], [], [LONG]), RecordingMemory()
    scheduler = Scheduler(Sizes(n_slots=2, has_side=True), memory)
    side = side_with(NotedContext(gate=gate))
    Loop(RoomyModel(), OneLetter, scheduler, pipe, memory, side).run()
    assert ends(pipe.outputs) == {"good": Ended}
    gate.set()
    assert side.close()
