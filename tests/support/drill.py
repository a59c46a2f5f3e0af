"""A fleet of simulated engines for drills: what tests of failover, drain and cancels share.

Text depends on prompt, seed and position alone, so an answer that went on elsewhere must read as one
that nobody disturbed.
"""

import asyncio
import json
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from schemas import subjects
from schemas.events import Cancelled, Claimed, Event, Failed, Finished
from schemas.generation import Generation, apply_entry
from services.bus.connection import Bus, connect
from services.bus.errors import BusUnavailable
from services.bus.jetstream import api
from services.bus.log import read_log
from services.bus.open_tasks import open_tasks
from tests.support.fleet import Fleet, Service
from tests.support.gateway import frames_of
from tests.support.nats_nodes import nats_nodes
from tests.support.readers import Answer, Reader

LEASE_S = 2.0
BUS_PATIENCE_S = 45.0
POLL_S = 0.02
LONG = {
    "prompt": "once upon a time",
    "n_predict": 120,
    "seed": 7,
    "stream": True,
    "ignore_eos": True,
}


@contextmanager
def simulated_fleet(
    folder: Path, *, timeout_s: int = 60, n_nodes: int = 1, **changes: str
) -> Generator[Fleet]:
    """Models service, two gateways and a reader; no engine yet. 80 tokens/s and slot, 4 slots each."""
    variables = {
        "LLAMATAPE_SIMULATE": "tokens_per_s=80",
        "LLAMATAPE_LEASE_S": f"{LEASE_S:g}",
        "LLAMA_ARG_N_PARALLEL": "4",
        "LLAMA_ARG_TIMEOUT": str(timeout_s),
        **changes,
    }
    with nats_nodes(folder / "nats", n_nodes) as nats, Fleet(nats, folder, **variables) as fleet:
        fleet.start("m0", "g0", "g1", "s0")
        yield fleet


@dataclass
class Drill:
    """One test's view of a fleet."""

    fleet: Fleet
    bus: Bus
    http: httpx.AsyncClient

    def url(self, name: str, path: str = "") -> str:
        return self.fleet[name].url + path

    def reader(self, first: str = "g0", conversation: str = "") -> Reader:
        """A client that begins at one gateway and resumes at the others; its own conversation."""
        urls = [self.url(name) for name in (first, "g1", "s0")]
        return Reader(self.http, urls, conversation or str(uuid.uuid4()))

    def ask(self, a_reader: Reader, **changes: Any) -> "asyncio.Task[Answer]":
        return asyncio.create_task(a_reader.ask("/completion", LONG | changes))

    async def undisturbed(self, **changes: Any) -> str:
        """What the answer must say."""
        body = LONG | {"stream": False} | changes
        answers: list[httpx.Response] = []

        async def is_answered() -> bool:
            """A broker that has just come back, or elects a leader, makes it a 503; one that was cut off
            answers nothing until the gateway notices."""
            with suppress(httpx.TransportError):
                answers.append(await self.http.post(self.url("g0", "/completion"), json=body))
                return answers[-1].status_code != 503
            return False

        await until_true(is_answered, 90)
        assert answers[-1].status_code == 200, answers[-1].text
        return answers[-1].json()["content"]

    async def events(self, answer: Answer) -> list[Event]:
        """Of its log. The broker that the test itself asks may be the one that was struck."""
        events: list[Event] = []

        async def are_read() -> bool:
            with suppress(BusUnavailable):
                entries = await read_log(self.bus, answer.headers["x-generation-id"])
                events.extend(event for entry in entries for event in entry.events)
                return True
            return False

        await until_true(are_read, BUS_PATIENCE_S)
        return events

    async def state(self, generation_id: str) -> Generation:
        """Of its log, folded."""
        state = Generation()
        for entry in await read_log(self.bus, generation_id):
            state = apply_entry(state, entry.seq, entry.events)
        return state

    async def owner(self, a_reader: Reader) -> Service:
        """The engine that has the generation now."""
        claims = [e for e in await self.events(a_reader.answer) if isinstance(e, Claimed)]
        return self.fleet[claims[-1].engine]

    async def check(self, answer: Answer, *, n_attempts: int | None = None) -> list[Event]:
        """Its log has one end and nothing out of order; the client has exactly its rendering."""
        assert answer.is_complete
        events = await self.events(answer)
        check_log(events, n_attempts)
        assert await self.replayed(answer) == answer.body
        return events

    async def replayed(self, answer: Answer) -> bytes:
        """What another gateway has of it, once its own broker is there again."""
        found: list[httpx.Response] = []

        async def is_found() -> bool:
            query = {"conv_id": answer.conversation}
            with suppress(httpx.TransportError):
                found.append(await self.http.get(self.url("g1", "/v1/stream"), params=query))
                return found[-1].status_code == 200
            return False

        await until_true(is_found, BUS_PATIENCE_S)
        return found[-1].content

    async def no_slot_is_busy(self) -> None:
        async def is_free() -> bool:
            response = await self.http.get(self.url("g0", "/slots"))
            return response.status_code == 200 and not any(
                slot["is_processing"] for slot in response.json()
            )

        await until_true(is_free, 10)

    async def no_task_is_left(self, timeout_s: float = 30) -> None:
        """The queue is empty."""

        async def is_empty() -> bool:
            with suppress(BusUnavailable):
                return not await open_tasks(self.bus)
            return False

        await until_true(is_empty, timeout_s)

    async def generation_ids(self) -> set[str]:
        """Of all logs."""
        body: dict[str, object] = {"subjects_filter": subjects.GENERATIONS_SUBJECTS}
        info = await api(self.bus, f"STREAM.INFO.{subjects.GENERATIONS_STREAM}", body)
        return set(map(subjects.generation_id_of, info["state"].get("subjects", {})))

    async def new_ids(self, known: set[str], n: int) -> set[str]:
        """The ids of `n` logs that were not known."""

        async def are_there() -> bool:
            return len(await self.generation_ids() - known) >= n

        await until_true(are_there, 20)
        return await self.generation_ids() - known


@asynccontextmanager
async def drill(fleet: Fleet, *engines: str) -> AsyncGenerator[Drill]:
    """A drill with exactly these engines, and all else running."""
    await asyncio.to_thread(fleet.ensure, *engines)
    bus = await connect(fleet.nats.settings(), name="test")
    limits = httpx.Limits(max_keepalive_connections=0)
    try:
        async with httpx.AsyncClient(timeout=30, limits=limits) as http:
            yield Drill(fleet, bus, http)
    finally:
        await bus.close()


async def begun(a_reader: Reader, n_bytes: int = 2000) -> None:
    """So much of the answer has come."""

    async def has_come() -> bool:
        return len(a_reader.answer.body) >= n_bytes

    await until_true(has_come, 20, poll_s=0.001)


async def until_true(
    is_true: Callable[[], Awaitable[bool]], timeout_s: float, poll_s: float = POLL_S
) -> None:
    """Look again and again: other processes tell nobody."""
    async with asyncio.timeout(timeout_s):
        while not await is_true():  # noqa: ASYNC110
            await asyncio.sleep(poll_s)


def check_log(events: list[Event], n_attempts: int | None = None) -> None:
    """One end, nothing out of order, so many attempts."""
    state = apply_entry(Generation(), 1, events)
    assert state.n_ignored == 0
    assert isinstance(state.end, Finished)
    assert sum(isinstance(e, Finished | Failed | Cancelled) for e in events) == 1
    assert n_attempts is None or state.attempt == n_attempts


def text_of(answer: Answer) -> str:
    """What its first choice says."""
    frames = [json.loads(frame) for frame in frames_of(answer.body.decode()) if frame[0] == "{"]
    return "".join(frame["content"] for frame in frames if frame.get("index", 0) == 0)
