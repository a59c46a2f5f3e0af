"""An engine without a model: speaks the real RPC, takes real tasks, appends real events.

What it says is a script. Tests hold it with `may_start` (a task waits in the queue of slots) and
`may_go_on` (it stands after its first token), and see with `started` and `ended` how far it came.
"""

import asyncio
from dataclasses import dataclass, field

import orjson

from schemas import codec, subjects
from schemas.errors import Problem, RequestError
from schemas.events import (
    ChoiceEnd,
    ChoiceStart,
    Claimed,
    Compat,
    Event,
    Failed,
    Finished,
    Prompt,
    Started,
    Timings,
    Tokens,
    Usage,
)
from schemas.generation import Generation
from schemas.lifecycle import LOADED, EnginePresence, ModelStatus
from schemas.params import Limits, Output, Params, Sampling
from schemas.rpc import (
    ApplyTemplate,
    DescribeMetrics,
    DescribeModel,
    DescribeSlots,
    Detokenize,
    Detokenized,
    EngineQuestion,
    MetricsDescription,
    ModelDescription,
    Prepare,
    Prepared,
    SlotDescription,
    SlotsDescription,
    TemplateApplied,
    Tokenize,
    Tokenized,
)
from schemas.struct import Message
from services.bus.connection import Bus
from services.bus.errors import Fenced, LogClosed
from services.bus.kv import Bucket
from services.bus.log import LogWriter
from services.bus.rpc import serve
from services.bus.task_queue import TaskQueue
from services.bus.tasks import Delivery, on_poke
from tests.support.logs import opened

N_CTX = 256
N_VOCAB = 1000
FETCH_WAIT_S = 0.2
COMPAT = Compat(model="scripted", n_ctx=N_CTX, build="b1")


@dataclass(kw_only=True)
class Script:
    """What the engine does. texts: one token each. refusal: the answer to every Prepare.

    failure: ends every generation before its start. prompt: text that every request becomes.
    n_slots: as it describes itself.
    """

    texts: tuple[str, ...] = ("Hello", " wor", "ld", "!")
    refusal: Problem | None = None
    failure: Problem | None = None
    prompt: str = "abc"
    n_slots: int = 4


@dataclass
class Gates:
    """Events by which a test steers and follows the engine."""

    may_start: asyncio.Event = field(default_factory=asyncio.Event)
    may_go_on: asyncio.Event = field(default_factory=asyncio.Event)
    started: dict[str, asyncio.Event] = field(default_factory=dict[str, asyncio.Event])
    ended: dict[str, asyncio.Event] = field(default_factory=dict[str, asyncio.Event])

    def open(self) -> None:
        """Let everything go on."""
        self.may_start.set()
        self.may_go_on.set()

    def started_event(self, generation_id: str) -> asyncio.Event:
        return self.started.setdefault(generation_id, asyncio.Event())

    def ended_event(self, generation_id: str) -> asyncio.Event:
        return self.ended.setdefault(generation_id, asyncio.Event())


class ScriptedEngine:
    """Serves one model on a bus; `start`, then `stop` in every case.

    prepares: every Prepare that came. taken: generation ids in the order in which tasks came.
    """

    def __init__(
        self,
        bus: Bus,
        model_key: str,
        *,
        script: Script | None = None,
        engine: str = "e1",
        ordinal: int = 0,
    ) -> None:
        self._bus = bus
        self._model_key = model_key
        self._engine = engine
        self._ordinal = ordinal
        self._writer = LogWriter(bus)
        self._queue = TaskQueue(bus, model_key)
        self._running: set[asyncio.Task[None]] = set()
        self._is_stopping = False
        self._n_at_once = 16
        self.script = script or Script()
        self.gates = Gates()
        self.gates.open()
        self.prepares: list[Prepare] = []
        self.taken: asyncio.Queue[str] = asyncio.Queue()
        self.pokes: list[str] = []

    async def start(self, *, status: str = LOADED, error: str = "") -> None:
        """Serve RPC and tasks, and tell the buckets that the model is there."""
        for engine in (None, self._engine):
            subject = subjects.engine_rpc(self._model_key, engine)
            await serve(self._bus, subject, EngineQuestion, self._answer, queue="engines")
        await on_poke(self._bus, self._model_key, self._on_poke)
        await self._queue.start()
        self._fetching = asyncio.create_task(self._fetch())
        await self.announce(status, error)

    async def announce(self, status: str, error: str = "") -> None:
        """Write presence and the model's status, as the engine and the models service would."""
        presence = EnginePresence(
            engine=self._engine,
            ordinal=self._ordinal,
            host="h1",
            model_key=self._model_key,
            status=status,
            n_slots=self.script.n_slots,
            n_ctx=N_CTX,
        )
        model = ModelStatus(
            model_key=self._model_key,
            name="tiny",
            status=status,
            error=error,
            created_at_s=1_700_000_000,
            changed_at_s=1_700_000_000,
        )
        key = subjects.presence_key("engine", self._engine)
        await Bucket(self._bus, subjects.PRESENCE_BUCKET).put(key, codec.encode(presence))
        await Bucket(self._bus, subjects.MODELS_BUCKET).put(self._model_key, codec.encode(model))

    async def stop(self) -> None:
        """Finish the current fetch, drop what is running."""
        self._is_stopping = True
        await self._queue.stop()
        await self._fetching
        for task in tuple(self._running):
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def _on_poke(self, generation_id: str) -> None:
        self.pokes.append(generation_id)
        self.gates.ended_event(generation_id).set()

    async def stop_taking(self) -> None:
        """Answer questions only, until `take`."""
        self._is_stopping = True
        await self._queue.stop()
        await self._fetching

    async def take(self, n_at_once: int = 16) -> None:
        """Take tasks again. n_at_once: 1 for the order in which an engine with one slot takes them."""
        self._is_stopping, self._n_at_once = False, n_at_once
        self._queue = TaskQueue(self._bus, self._model_key)
        await self._queue.start()
        self._fetching = asyncio.create_task(self._fetch())

    async def _fetch(self) -> None:
        while not self._is_stopping:
            for delivery in await self._queue.fetch(self._n_at_once, wait_s=FETCH_WAIT_S):
                task = asyncio.create_task(self._generate(delivery))
                self._running.add(task)
                task.add_done_callback(self._running.discard)

    async def _generate(self, delivery: Delivery) -> None:
        generation_id = delivery.task.generation_id
        self.taken.put_nowait(generation_id)
        try:
            await self._play(generation_id, await opened(self._bus, generation_id))
        except (Fenced, LogClosed):
            pass
        await delivery.ack()
        self.gates.ended_event(generation_id).set()

    async def _play(self, generation_id: str, state: Generation) -> None:
        if state.is_closed or state.requested is None:
            return
        state = await self._append(state, generation_id, Claimed(attempt=1, engine=self._engine))
        await self._unless_poked(generation_id, self.gates.may_start)
        if self.script.failure is not None:
            failed = Failed(problem=self.script.failure, by="engine")
            await self._append(state, generation_id, failed)
            return
        n_choices = state.requested.params.n_cmpl
        state = await self._append(state, generation_id, _started(n_choices))
        self.gates.started_event(generation_id).set()
        for choice in range(n_choices):
            state = await self._say(generation_id, state, choice)
        usage = Usage(n_prompt=3, n_predicted=n_choices * len(self.script.texts))
        await self._append(state, generation_id, Finished(usage=usage))

    async def _say(self, generation_id: str, state: Generation, choice: int) -> Generation:
        texts = self.script.texts
        for index, text in enumerate(texts):
            end = _end(choice, len(texts)) if index == len(texts) - 1 else None
            event = Tokens(choice=choice, index=index, ids=(index + 10,), texts=(text,), end=end)
            state = await self._append(state, generation_id, event)
            await self._unless_poked(generation_id, self.gates.may_go_on)
        return state

    async def _append(self, state: Generation, generation_id: str, event: Event) -> Generation:
        return await self._writer.append(state, generation_id, event)

    async def _unless_poked(self, generation_id: str, gate: asyncio.Event) -> None:
        """Wait for a gate; a poke opens it too, and the next append then meets the fence."""
        if gate.is_set():
            return
        poked = self.gates.ended_event(generation_id)
        waiting = [asyncio.create_task(event.wait()) for event in (gate, poked)]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()

    async def _answer(self, question: EngineQuestion) -> Message:
        match question:
            case Prepare():
                return self._prepared(question)
            case ApplyTemplate():
                messages = orjson.loads(question.body)["messages"]
                return TemplateApplied(
                    prompt="".join(f"<{m['role']}>{m['content']}" for m in messages)
                )
            case Tokenize():
                return _tokenized(orjson.loads(question.content))
            case Detokenize():
                return _detokenized(question.ids)
            case DescribeModel():
                return description(self.script.n_slots)
            case DescribeSlots():
                return self._slots()
            case DescribeMetrics():
                figures = self._bus.counters.figures()
                return MetricsDescription(engine=self._engine, started_at_s=1, bus=figures)

    def _prepared(self, question: Prepare) -> Prepared:
        self.prepares.append(question)
        if self.script.refusal is not None:
            raise RequestError(self.script.refusal)
        body = orjson.loads(question.body)
        options = body.get("stream_options") or {}
        params = Params(
            sampling=Sampling(n_probs=body.get("n_probs") or 0),
            limits=Limits(n_predict=body.get("n_predict", body.get("max_tokens", -1))),
            output=Output(
                stream=bool(body.get("stream")), include_usage=bool(options.get("include_usage"))
            ),
            n_cmpl=body.get("n_cmpl") or body.get("n") or 1,
        )
        return Prepared(
            prompts=(Prompt(ids=(1, 2, 3), text=self.script.prompt),),
            params=params,
            n_slots=params.n_cmpl,
            n_ctx=N_CTX,
        )

    def _slots(self) -> SlotsDescription:
        n_busy = len(self._running)
        slots = tuple(
            SlotDescription(id=i, n_ctx=N_CTX, is_processing=i < n_busy)
            for i in range(self.script.n_slots)
        )
        return SlotsDescription(engine=self._engine, ordinal=self._ordinal, slots=slots)


def description(n_slots: int) -> ModelDescription:
    return ModelDescription(
        path="models/tiny.gguf",
        name="tiny",
        chat_template="{{ messages }}",
        bos_token="<s>",
        eos_token="</s>",
        build="b1-scripted",
        n_slots=n_slots,
        n_ctx=N_CTX,
        n_ctx_train=2048,
        n_vocab=N_VOCAB,
        n_embd=64,
        n_params=1_000_000,
        n_bytes=2_000_000,
        vocab_type=1,
        ftype="Q4_1",
        params=Params(),
    )


def _started(n_choices: int) -> Started:
    starts = tuple(ChoiceStart(choice=i, slot=i, seed=42, n_prompt=3) for i in range(n_choices))
    return Started(attempt=1, compat=COMPAT, choices=starts)


def _end(choice: int, n_predicted: int) -> ChoiceEnd:
    return ChoiceEnd(
        choice=choice,
        stop_type="eos",
        n_predicted=n_predicted,
        n_prompt=3,
        n_context=3 + n_predicted,
        slot=choice,
        timings=Timings(n_prompt=3, prompt_ms=1.0, n_predicted=n_predicted, predicted_ms=2.0),
    )


def _tokenized(content: str | list[str | int]) -> Tokenized:
    """One token per character; ids go through."""
    ids: list[int] = []
    for part in [content] if isinstance(content, str) else content:
        ids += [part] if isinstance(part, int) else [ord(char) % N_VOCAB for char in part]
    _check_ids(ids)
    return Tokenized(ids=tuple(ids), pieces=tuple(bytes([i % 256]) for i in ids))


def _detokenized(ids: tuple[int, ...]) -> Detokenized:
    _check_ids(ids)
    return Detokenized(content="".join(chr(i) for i in ids))


def _check_ids(ids: list[int] | tuple[int, ...]) -> None:
    if any(not 0 <= i < N_VOCAB for i in ids):
        raise RequestError.invalid("token id out of range")
