"""A runner on a real broker whose decoder is played by the test: what it is told, and what it says."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

import msgspec

from schemas import subjects
from schemas.events import (
    Cancelled,
    ChoiceEnd,
    ChoiceStart,
    Claimed,
    Compat,
    Event,
    Prompt,
    Requested,
    Timings,
)
from schemas.generation import Generation, apply_entry
from schemas.ids import new_short_id
from schemas.params import Output as OutputParams
from schemas.params import Params
from schemas.rpc import Prepared
from schemas.tasks import Task
from services.bus.connection import Bus, unsubscribe
from services.bus.jetstream import api
from services.bus.log import LogWriter, read_log
from services.bus.task_queue import TaskQueue
from services.bus.tasks import on_poke, publish_task
from services.engine.config import EngineSettings
from services.engine.jobs import n_choices
from services.engine.protocol import (
    Admit,
    Cancel,
    Command,
    Emitted,
    Ended,
    Output,
    PromptProgress,
    SlotsStarted,
)
from services.engine.runner import Runner
from tests.support import events
from tests.support.logs import until

COMPAT = Compat(model="m", n_ctx=256, build="b")
TIMEOUT_S = 20.0


@dataclass
class PlayedDecoder:
    """Takes commands; a test says the outputs. is_dead: commands are lost, as a dead one's are."""

    admitted: "asyncio.Queue[Admit]" = field(default_factory=lambda: asyncio.Queue())
    cancelled: "asyncio.Queue[str]" = field(default_factory=lambda: asyncio.Queue())
    paused: asyncio.Event = field(default_factory=asyncio.Event)
    resumed: asyncio.Event = field(default_factory=asyncio.Event)
    is_dead: bool = False

    def send(self, command: Command) -> None:
        if self.is_dead:
            return
        if isinstance(command, Admit):
            self.admitted.put_nowait(command)
        elif isinstance(command, Cancel):
            self.cancelled.put_nowait(command.generation_id)

    def pause(self) -> None:
        self.paused.set()
        self.resumed.clear()

    def resume(self) -> None:
        self.resumed.set()

    async def next_admit(self) -> Admit:
        return await asyncio.wait_for(self.admitted.get(), TIMEOUT_S)


class Desk:
    """One engine: its runner, its played decoder, and the requests that a test makes of it."""

    def __init__(self, bus: Bus, model_key: str, engine: str, **settings: object) -> None:
        fields: dict[str, object] = {"n_slots": 4, **settings}
        self.bus, self.model_key = bus, model_key
        self.decoder = PlayedDecoder()
        self.settings = EngineSettings(
            engine=engine,
            host="h",
            model_key=model_key,
            model_name="m",
            model_path="m",
            **fields,  # type: ignore[arg-type]
        )
        self.is_alone = True
        self.runner = Runner(
            bus, self.settings, COMPAT, self.decoder, build="b", is_alone=lambda: self.is_alone
        )

    async def request(self, generation_id: str = "", **changes: object) -> str:
        """A request as a gateway makes it."""
        requested = new_requested(generation_id or events.new_id(), self.model_key, **changes)
        task = Task(generation_id=requested.generation_id, created_at_ms=requested.created_at_ms)
        await publish_task(self.bus, self.model_key, task)
        await LogWriter(self.bus).append(Generation(), requested.generation_id, requested)
        return requested.generation_id

    async def prepare(self, generation_id: str, **changes: object) -> None:
        """A gateway has the same request prepared."""
        requested = new_requested(generation_id, self.model_key, **changes)
        prepared = Prepared(
            prompts=requested.prompts,
            params=requested.params,
            n_slots=n_choices(requested),
            n_ctx=COMPAT.n_ctx,
        )
        await self.runner._is_open.wait()
        self.runner.on_prepare()
        self.runner.on_prepared(generation_id, prepared)

    async def admits(self, n: int) -> list[str]:
        """The generations that the decoder is told to run next."""
        return [(await self.decoder.next_admit()).generation_id for _ in range(n)]

    def say(self, *outputs: Output) -> None:
        self.runner.on_outputs(self.runner.head_starts.sift(outputs))

    def start(self, generation_id: str) -> None:
        choice = ChoiceStart(choice=0, slot=0, seed=1, n_prompt=3)
        self.say(SlotsStarted(generation_id=generation_id, choices=(choice,)))

    def progress(self, generation_id: str) -> None:
        counts = {"n_total": 3, "n_cached": 0, "n_processed": 1, "elapsed_us": 1}
        self.say(PromptProgress(generation_id=generation_id, choice=0, **counts))

    def token(self, generation_id: str, index: int, text: str = "a") -> None:
        self.say(Emitted(generation_id=generation_id, choice=0, index=index, id=7, text=text))

    def end(self, generation_id: str, n_predicted: int) -> None:
        end = ChoiceEnd(
            choice=0, stop_type="eos", n_predicted=n_predicted, n_prompt=3, timings=Timings()
        )
        self.say(Ended(generation_id=generation_id, end=end))

    def crash(self) -> None:
        """The decoder dies."""
        self.decoder.is_dead = True
        self.runner.on_decoder_gone()

    def restart(self) -> None:
        """The next one is there."""
        self.decoder.is_dead = False
        self.runner.on_decoder_ready()


@contextlib.asynccontextmanager
async def desk(
    bus: Bus, model_key: str, engine: str = "", **settings: object
) -> AsyncGenerator[Desk]:
    """A desk at work; its decoder is ready. It is drained at the end."""
    made = Desk(bus, model_key, engine or new_short_id("e"), **settings)
    queue = TaskQueue(bus, model_key)
    await queue.start()
    poked = await on_poke(bus, model_key, made.runner.on_poke)
    made.runner.on_decoder_ready()
    work = [asyncio.create_task(w) for w in (made.runner.consume(queue), made.runner.tick())]
    try:
        yield made
    finally:
        made.runner.stop_taking()
        await queue.stop()
        await made.runner.drain(0)
        for task in work:
            task.cancel()
        await asyncio.gather(*work, return_exceptions=True)
        await unsubscribe(poked)


def new_requested(generation_id: str, model_key: str, **changes: object) -> Requested:
    """What opens a log now; it has a minute."""
    now_ms = time.time_ns() // 1_000_000
    fields: dict[str, object] = {
        "prompts": (Prompt(ids=(1, 2, 3), text="abc"),),
        "params": Params(output=OutputParams(stream=True)),
        "model_key": model_key,
        "created_at_ms": now_ms,
        "deadline_at_ms": now_ms + 60_000,
    }
    return msgspec.structs.replace(events.requested(generation_id), **(fields | changes))


async def log_of(bus: Bus, generation_id: str) -> list[Event]:
    return [event for entry in await read_log(bus, generation_id) for event in entry.events]


async def state_of(bus: Bus, generation_id: str) -> Generation:
    state = Generation()
    for entry in await read_log(bus, generation_id):
        state = apply_entry(state, entry.seq, entry.events)
    return state


async def cancel(bus: Bus, generation_id: str) -> None:
    """As a gateway does it."""
    state = await state_of(bus, generation_id)
    event = Cancelled(by="gateway", reason="stopped")
    await LogWriter(bus).append(state, generation_id, event)


async def with_token(a_desk: Desk, generation_id: str, n_tokens: int) -> Generation:
    """Its next token is in the log."""
    a_desk.token(generation_id, n_tokens)
    return await until(a_desk.bus, generation_id, lambda state: state.n_tokens.get(0, 0) > n_tokens)


async def attempts(bus: Bus, generation_id: str) -> list[int]:
    return [e.attempt for e in await log_of(bus, generation_id) if isinstance(e, Claimed)]


async def until_empty(bus: Bus, model_key: str) -> None:
    """No task of the model is left in the queue."""
    verb = f"CONSUMER.INFO.{subjects.TASKS_STREAM}.{subjects.tasks_durable(model_key)}"
    async with asyncio.timeout(10):
        while _n_left(await api(bus, verb)):  # noqa: ASYNC110 (the broker tells nobody)
            await asyncio.sleep(0.02)


def _n_left(info: dict[str, int]) -> int:
    return info["num_pending"] + info["num_ack_pending"]
