"""One running engine front: wires bus, decoder, tokenizer and runner together, and answers questions."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from schemas import rpc, subjects
from schemas.errors import RequestError
from schemas.lifecycle import FAILED, LOADED, LOADING, EnginePresence
from services.bus.connection import Bus, Subscription, unsubscribe
from services.bus.rpc import serve
from services.bus.task_queue import TaskQueue
from services.bus.tasks import on_poke
from services.engine.config import EngineSettings
from services.engine.control import INTERRUPTED, TAKEN, judge
from services.engine.decoder_process import DecoderEvents, DecoderProcess
from services.engine.errors import EngineError
from services.engine.meter import Meter
from services.engine.presence import Presence
from services.engine.protocol import Control, Output, Ready, SlotActed, SlotsStarted
from services.engine.questions import Questions, load_questions
from services.engine.runner import Runner
from services.engine.slot_desk import SlotDesk
from services.engine.slots_view import SlotsView

log = logging.getLogger(__name__)

WATCH_S = 0.5
CONTROL_TIMEOUT_S = 10.0


class Front:
    """An engine from start to stop. Event-loop thread only; built by bootstrap."""

    def __init__(self, bus: Bus, settings: EngineSettings, build: str) -> None:
        self._bus = bus
        self._settings = settings
        self._build = build
        self._questions: Questions | None = None
        self._runner: Runner | None = None
        self._slots = SlotsView(settings.n_slots, 0)
        self._meter = Meter()
        self._presence = Presence(bus, _first_presence(settings))
        self._decoder = DecoderProcess(
            settings,
            DecoderEvents(
                on_outputs=self._on_outputs,
                on_ready=self._on_ready,
                on_gone=self._on_gone,
                on_progress=self._on_progress,
            ),
        )
        self._desk = SlotDesk(self._decoder.send, settings.slot_save_path)
        self._was_ready = False
        self._tasks: list[asyncio.Task[None]] = []
        self._queue: TaskQueue | None = None
        self._subscriptions: list[Subscription] = []

    async def run(self, until: asyncio.Event) -> None:
        """Serve until `until` is set. Raises EngineError when the model cannot be loaded."""
        decoding = asyncio.create_task(self._decoder.run())
        stopping = asyncio.create_task(until.wait())
        try:
            self._spawn(self._presence.run())
            self._spawn(self._watch_decoder())
            # The weights load meanwhile.
            self._questions = await load_questions(self._settings, self._build)
            await self._open(self._questions)
            await asyncio.wait([decoding, stopping], return_when=asyncio.FIRST_COMPLETED)
            if decoding.done():
                decoding.result()
        except EngineError as error:
            self._presence.update(status=FAILED, error=str(error))
            await self._presence.publish()
            raise
        finally:
            await self._close(0.0 if decoding.done() else self._settings.drain_grace_s)
            for task in (decoding, stopping):
                task.cancel()
            await asyncio.wait([decoding, stopping])

    async def _open(self, questions: Questions) -> None:
        runner = Runner(
            self._bus,
            self._settings,
            questions.compat,
            self._decoder,
            build=self._build,
            on_forgotten=self._forget,
            on_outputs=self._on_outputs,
            is_alone=lambda: self._presence.is_alone,
        )
        await self._serve_questions()
        await on_poke(self._bus, self._settings.model_key, runner.on_poke)
        queue = TaskQueue(self._bus, self._settings.model_key, self._settings.ordinal)
        await queue.start()
        self._queue = queue
        self._spawn(runner.consume(queue))
        self._spawn(runner.tick())
        self._runner = runner
        if self._decoder.is_ready:
            runner.on_decoder_ready()

    async def _serve_questions(self) -> None:
        settings = self._settings
        key = settings.model_key
        for subject, queue in (
            (subjects.engine_rpc(key), "engines"),
            (subjects.engine_rpc(key, settings.engine), ""),
            (subjects.engines_rpc(key), ""),
        ):
            subscription = await serve(
                self._bus, subject, rpc.EngineQuestion, self._answer, queue=queue
            )
            self._subscriptions.append(subscription)

    async def _close(self, grace_s: float) -> None:
        """Leave: others get the questions and tasks from now on; what runs has `grace_s` to end."""
        if self._runner is not None:
            self._runner.stop_taking()
            for subscription in self._subscriptions:
                await unsubscribe(subscription)
            if self._queue is not None:
                await self._queue.stop()
            await self._runner.drain(grace_s)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._presence.withdraw()
        await self._decoder.stop()
        if self._questions is not None:
            self._questions.close()

    async def _answer(self, question: rpc.EngineQuestion) -> Any:
        if isinstance(question, rpc.DescribeSlots):
            return self._describe_slots()
        if isinstance(question, rpc.ChangeSlot):
            return await self._desk.change(question)
        if isinstance(question, rpc.DescribeMetrics):
            return self._meter.describe(self._settings.engine, self._bus.counters.figures())
        if isinstance(question, rpc.ControlGeneration):
            return await self._control(question)
        if isinstance(question, rpc.Prepare):
            return await self._prepare(question)
        assert self._questions is not None, "questions are served once they are loaded"
        return await self._questions.answer(question)

    async def _prepare(self, question: rpc.Prepare) -> rpc.Prepared:
        runner, questions = self._runner, self._questions
        if not self._was_ready or runner is None or questions is None:
            raise RequestError.unavailable("Loading model")
        prepared: rpc.Prepared | None = None
        runner.on_prepare(question.n_following)
        try:
            prepared = await questions.prepare(question)
            return prepared
        finally:
            runner.on_prepared(question.generation_id, prepared)

    def _describe_slots(self) -> rpc.SlotsDescription:
        settings = self._settings
        return rpc.SlotsDescription(
            engine=settings.engine, ordinal=settings.ordinal, slots=self._slots.describe()
        )

    async def _control(self, order: rpc.ControlGeneration) -> rpc.ControlTaken:
        """Answered when the effect is in the log, so that it is not lost with this engine."""
        run = None if self._runner is None else self._runner.runs.get(order.generation_id)
        found = judge(run, order.caller)
        if run is None or found is not TAKEN:
            return found
        control = Control(generation_id=order.generation_id, action=order.action)
        try:
            async with asyncio.timeout(CONTROL_TIMEOUT_S):
                is_stored = await run.order(lambda: self._decoder.send(control))
        except TimeoutError:
            is_stored = False
        return TAKEN if is_stored else INTERRUPTED

    async def _watch_decoder(self) -> None:
        while True:
            await asyncio.sleep(WATCH_S)
            self._decoder.check(is_busy=self._runner is not None and self._runner.is_busy)

    def _on_outputs(self, outputs: tuple[Output, ...]) -> None:
        runner = self._runner
        if runner is None:
            return
        outputs = runner.head_starts.sift(outputs)
        self._meter.take(outputs)
        for output in outputs:
            if isinstance(output, SlotsStarted):
                self._on_started(output, runner)
                continue
            self._slots.on_output(output)
            if isinstance(output, SlotActed):
                self._desk.on_acted(output)
        runner.on_outputs(outputs)

    def _forget(self, generation_id: str) -> None:
        self._slots.forget(generation_id)
        self._meter.forget(generation_id)

    def _on_started(self, output: SlotsStarted, runner: Runner) -> None:
        run = runner.runs.get(output.generation_id)
        if run is not None:
            self._slots.on_started(output, run.requested.params)

    def _on_ready(self, ready: Ready) -> None:
        self._was_ready = True
        log.info("action=decoder_ready pid=%s n_ctx=%d", self._decoder.pid, ready.n_ctx)
        self._slots.reset(ready.n_slots, ready.n_ctx_slot)
        self._presence.update(
            status=LOADED, progress=1.0, n_slots=ready.n_slots, n_ctx=ready.n_ctx_slot
        )
        if self._runner is not None:
            self._runner.on_decoder_ready()

    def _on_gone(self) -> None:
        self._desk.on_gone()
        self._slots.reset(self._settings.n_slots, 0)
        self._meter.reset()
        if self._runner is not None:
            self._runner.on_decoder_gone()

    def _on_progress(self, fraction: float) -> None:
        self._presence.update(progress=fraction)

    def _spawn(self, work: "Coroutine[Any, Any, None]") -> None:
        self._tasks.append(asyncio.create_task(work))


def _first_presence(settings: EngineSettings) -> EnginePresence:
    return EnginePresence(
        engine=settings.engine,
        host=settings.host,
        model_key=settings.model_key,
        status=LOADING,
        ordinal=settings.ordinal,
        n_slots=settings.n_slots,
    )
