"""The decode loop: commands in, one `llama_decode` per step, one report out. One thread, no asyncio."""

import logging
import time

from schemas.errors import EXCEED_CONTEXT_SIZE, Problem, RequestError
from schemas.events import Shifted
from services.engine.batches import DECODED, KV_FULL
from services.engine.context_shift import Shift
from services.engine.decoder.backend import Channel, Model, OpenChoice, Running
from services.engine.decoder.job import Place
from services.engine.decoder.requests import choice_start, requests_of
from services.engine.decoder.slot_actions import SlotActions, SlotFiles
from services.engine.protocol import (
    ActOnSlot,
    Admit,
    Broken,
    Cancel,
    ChoiceJob,
    Command,
    ContextShifted,
    Control,
    ControlTaken,
    Dropped,
    Ended,
    Output,
    PromptProgress,
    ReasoningEnded,
    SlotsStarted,
    Stop,
)
from services.engine.scheduler import Advance, Batch, Scheduler
from services.engine.seating import Seat
from services.engine.side_prefill import NotPrefilled, Prefilled, Progressed, SidePrefill
from services.engine.slots import Slot

log = logging.getLogger(__name__)

CONTEXT_FULL = "the context of all slots together is full; start with a larger -c or fewer slots"


class Loop:
    """Runs generations in the slots of one context until it is told to stop.

    side: decodes long prompts meanwhile, where the scheduler sends any.
    """

    def __init__(
        self,
        context: Model,
        open_choice: OpenChoice,
        scheduler: Scheduler,
        pipe: Channel,
        files: SlotFiles,
        side: SidePrefill | None = None,
    ) -> None:
        self._context = context
        self._open_choice = open_choice
        self._scheduler = scheduler
        self._pipe = pipe
        self._side = side
        self._is_stalled = False
        self._actions = SlotActions(
            scheduler, files, n_vocab=context.n_vocab, n_ctx_slot=context.n_ctx_slot
        )
        self._admitted: dict[str, Admit] = {}
        self._running: dict[int, Running] = {}
        self._outputs: list[Output] = []
        self._tidy()

    def run(self) -> None:
        """Returns after Stop. Raises PipeClosed when the front is gone, within one ubatch."""
        while True:
            if self._is_stalled:
                self._pipe.wait(other=self._side)
            can_wait = self._scheduler.is_idle and not len(self._actions)
            commands = self._pipe.read_commands(can_wait=can_wait)
            if any(isinstance(command, Stop) for command in commands):
                return
            for command in commands:
                self._obey(command)
            self._outputs += self._actions.run_due()
            has_seated = self._seat()
            self._flush()
            if has_seated:
                self._tidy()
            self._step()
            self._flush()

    def _flush(self) -> None:
        if self._outputs:
            outputs, self._outputs = self._outputs, []
            self._pipe.write(outputs)

    # -- commands --------------------------------------------------------------------------------

    def _obey(self, command: Command) -> None:
        match command:
            case Admit():
                self._admit(command)
            case Cancel():
                self._drop(command.generation_id)
                if command.is_answered:
                    self._outputs.append(Dropped(generation_id=command.generation_id))
            case Control():
                self._end_reasoning(command.generation_id)
            case ActOnSlot():
                self._actions.add(command)
            case Stop():
                pass

    def _end_reasoning(self, generation_id: str) -> None:
        """For all choices that think; of others nothing is reported."""
        n_choices = 0
        for running in self._running.values():
            choice = running.choice
            if choice.place.generation_id == generation_id and running.end_reasoning():
                ended = ReasoningEnded(
                    generation_id=generation_id, choice=choice.job.choice, index=choice.n_predicted
                )
                self._outputs.append(ended)
                n_choices += 1
        self._outputs.append(ControlTaken(generation_id=generation_id, n_choices=n_choices))

    def _admit(self, admit: Admit) -> None:
        if admit.generation_id in self._admitted:
            log.warning("action=admitted_twice generation=%s", admit.generation_id)
            return
        problem = self._refusal(admit)
        if problem is not None:
            self._outputs.append(Broken(generation_id=admit.generation_id, problem=problem))
            return
        self._admitted[admit.generation_id] = admit
        for request in requests_of(admit, len(self._scheduler.slots)):
            self._scheduler.admit(request)

    def _refusal(self, admit: Admit) -> Problem | None:
        """What C would not survive, or what could never run; the front has refused it before."""
        n_slots = len(self._scheduler.slots)
        n_most = max((len(r.needs) for r in requests_of(admit, n_slots)), default=0)
        if not 0 < n_most <= n_slots:
            message = f"{n_most} choices do not fit into {n_slots} slots"
            return RequestError.invalid(message, "n").problem
        for job in admit.choices:
            if (problem := self._prompt_refusal(job)) is not None:
                return problem
        return None

    def _prompt_refusal(self, job: ChoiceJob) -> Problem | None:
        n_prompt, n_ctx = len(job.prompt), self._context.n_ctx_slot
        if n_prompt == 0:
            return RequestError.invalid("the prompt is empty", "prompt").problem
        if n_prompt >= n_ctx:
            return Problem(
                code=EXCEED_CONTEXT_SIZE,
                message=f"the prompt has {n_prompt} tokens, a slot has room for {n_ctx}",
                n_prompt_tokens=n_prompt,
                n_ctx=n_ctx,
            )
        ids = job.prompt + job.emitted
        if min(ids) < 0 or max(ids) >= self._context.n_vocab:
            return RequestError.invalid("the prompt has token ids that do not exist").problem
        return None

    # -- generations -----------------------------------------------------------------------------

    def _seat(self) -> bool:
        """Give free slots to those who wait; whether any were given."""
        has_seated = False
        while (seated := self._scheduler.seat_next()) is not None:
            has_seated = True
            generation_id, seats = seated
            try:
                self._start(self._admitted[generation_id], seats)
            except RequestError as error:
                self._break(generation_id, error.problem)
            except Exception:
                log.exception("action=start_failed generation=%s", generation_id)
                self._break(generation_id, RequestError.server("the decoder failed").problem)
        return has_seated

    def _tidy(self) -> None:
        """Look after idle slots. The lines are llama-server's at -v, by which its tests go."""
        for note in self._scheduler.tidy():
            log.debug("action=%s", note)

    def _start(self, admit: Admit, seats: tuple[Seat, ...]) -> None:
        job_of = {job.choice: job for job in admit.choices}
        jobs = [job_of[seat.choice] for seat in seats]
        for job, seat in zip(jobs, seats, strict=True):
            place = Place(
                generation_id=admit.generation_id,
                slot=seat.slot,
                n_ctx_slot=self._context.n_ctx_slot,
                n_cached=job.n_cached_first if job.emitted else seat.n_cached,
                started_us=_now_us(),
                can_shift=seat.can_shift,
            )
            self._running[seat.slot] = self._open_choice(job, admit.params, place)
        starts = tuple(map(choice_start, jobs, seats))
        self._outputs.append(SlotsStarted(generation_id=admit.generation_id, choices=starts))
        for seat in seats:
            self._end_if_over(seat.slot)

    def _end_if_over(self, slot: int) -> None:
        """A continued choice whose log was complete but for its end."""
        running = self._running[slot]
        if running.end is not None:
            generation_id = running.choice.place.generation_id
            self._outputs.append(Ended(generation_id=generation_id, end=running.end))
            self._free(slot)

    def _drop(self, generation_id: str, *, keeps_cache: bool = True) -> None:
        self._admitted.pop(generation_id, None)
        for slot in self._scheduler.cancel(generation_id, keeps_cache=keeps_cache):
            self._close(slot)

    def _break(self, generation_id: str, problem: Problem, *, keeps_cache: bool = True) -> None:
        self._drop(generation_id, keeps_cache=keeps_cache)
        self._outputs.append(Broken(generation_id=generation_id, problem=problem))

    def _free(self, slot: int) -> None:
        """A choice ended; its generation does when it was the last one."""
        generation_id = self._running[slot].choice.place.generation_id
        self._scheduler.release(slot)
        self._close(slot)
        left = (running.choice.place.generation_id for running in self._running.values())
        if generation_id not in left and not self._scheduler.has_waiting(generation_id):
            self._admitted.pop(generation_id, None)

    def _close(self, slot: int) -> None:
        running = self._running.pop(slot, None)
        if running is not None:
            running.close()
        if self._side is not None:
            self._side.abandon(slot)

    # -- steps -----------------------------------------------------------------------------------

    def _step(self) -> None:
        for slot, shift in self._scheduler.shift():
            self._report_shift(slot, shift)
        if self._side is not None:
            self._exchange(self._side)
        batch = self._scheduler.plan()
        if self._side is not None:
            self._side.share(is_busy=batch is not None)
            has_changed = bool(self._outputs)  # slots may be free now
            self._is_stalled = batch is None and self._side.is_active and not has_changed
        if batch is None:
            return
        started_us = _now_us()
        result = self._context.decode(batch)
        if result == DECODED:
            for advance in self._scheduler.commit(batch, _now_us() - started_us):
                self._advance(advance)
        elif result == KV_FULL:
            self._make_room()
        else:
            self._break_batch(batch, result)

    def _advance(self, advance: Advance) -> None:
        running = self._running.get(advance.slot)
        if running is None:
            return  # its generation broke on another slot of the same batch
        if advance.is_prompt:
            self._report_progress(running, advance.n_done)
        if advance.row is None:
            return
        try:
            self._sample(advance.slot, running, advance.row)
        except RequestError as error:
            self._break(running.choice.place.generation_id, error.problem)
        except Exception:
            generation_id = running.choice.place.generation_id
            log.exception("action=sampling_failed generation=%s", generation_id)
            self._break(generation_id, RequestError.server("the decoder failed").problem)

    def _sample(self, slot: int, running: Running, row: int) -> None:
        emitted, end = running.sample(row, _now_us())
        self._outputs.append(emitted)
        if end is None:
            self._scheduler.feed(slot, emitted.id)
        else:
            self._outputs.append(Ended(generation_id=emitted.generation_id, end=end))
            self._free(slot)

    def _report_progress(self, running: Running, n_done: int) -> None:
        """For chunks of the prompt; tokens that are replayed are no progress to anybody."""
        choice = running.choice
        n_total = len(choice.job.prompt)
        if n_done > n_total or choice.job.shifts:
            return
        progress = PromptProgress(
            generation_id=choice.place.generation_id,
            choice=choice.job.choice,
            n_total=n_total,
            n_cached=choice.place.n_cached,
            n_processed=n_done,
            elapsed_us=_now_us() - choice.place.started_us,
        )
        self._outputs.append(progress)

    def _report_shift(self, slot: Slot, shift: Shift) -> None:
        choice = self._running[slot.id].choice
        choice.shift(shift.n_discard)
        event = Shifted(
            choice=choice.job.choice,
            index=choice.n_predicted,
            n_keep=shift.n_keep,
            n_discard=shift.n_discard,
            n_past=len(slot.cached) + shift.n_discard,
        )
        generation_id = choice.place.generation_id
        self._outputs.append(ContextShifted(generation_id=generation_id, shift=event))

    # -- prompts that are decoded aside ----------------------------------------------------------

    def _exchange(self, side: SidePrefill) -> None:
        """Take what has been decoded aside, and give what is to be."""
        for result in side.results():
            if not self._scheduler.side.is_wanted(result.prompt):
                continue  # its generation broke where another one landed
            match result:
                case Progressed():
                    self._report_progress(self._running[result.prompt.slot], result.n_done)
                case Prefilled():
                    self._land(result)
                case NotPrefilled():
                    self._take_back(result)
        while side.has_room and (prompt := self._scheduler.side.next()) is not None:
            side.start(prompt)

    def _land(self, result: Prefilled) -> None:
        """It fails alone where its cells find no room."""
        prompt = result.prompt
        while not self._scheduler.side.land(prompt, result.state, result.copies):
            if not self._scheduler.purge_idle():
                problem = RequestError.server(CONTEXT_FULL).problem
                self._break(prompt.work.generation_id, problem, keeps_cache=False)
                return

    def _take_back(self, result: NotPrefilled) -> None:
        generation_id = result.prompt.work.generation_id
        if result.result == DECODED:
            log.warning("action=side_prefill_impossible generation=%s", generation_id)
            self._scheduler.side.give_up(result.prompt)
        else:
            log.error("action=side_prefill_failed result=%d", result.result)
            problem = RequestError.server(f"llama_decode failed ({result.result})").problem
            self._break(generation_id, problem, keeps_cache=False)

    def _make_room(self) -> None:
        """The KV cache is full: forget what idle slots remember, else give up the largest generation."""
        if self._scheduler.purge_idle():
            return
        problem = RequestError.server(CONTEXT_FULL).problem
        self._break(self._scheduler.largest(), problem, keeps_cache=False)

    def _break_batch(self, batch: Batch, result: int) -> None:
        log.error("action=decode_failed result=%d n_rows=%d", result, batch.n_rows)
        works = (self._scheduler.slots[part.slot].working() for part in batch.parts)
        problem = RequestError.server(f"llama_decode failed ({result})").problem
        for generation_id in {work.generation_id for work in works}:
            self._break(generation_id, problem, keeps_cache=False)


def _now_us() -> int:
    return time.monotonic_ns() // 1000
