"""What the read side expects of the logs: the same suite for the recording fake and the broker."""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

import pytest

from schemas.events import Finished, Usage
from schemas.generation import Generation
from services.bus.connection import Bus
from services.bus.errors import Fenced, LogClosed
from services.bus.log import Entry, LogWriter
from services.streams.ending import Writer
from services.streams.logs import BusLogs, Logs
from tests.support import events
from tests.support.fake_logs import FakeLogs

FINISHED = Finished(usage=Usage(n_prompt=3, n_predicted=2))


class Follower:
    """Gathers entries; `until` waits for so many."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.lost: list[Exception] = []
        self._changed = asyncio.Event()

    def take(self, entry: Entry) -> None:
        self.entries.append(entry)
        self._changed.set()

    async def until(self, n: int) -> None:
        while len(self.entries) < n:
            self._changed.clear()
            await self._changed.wait()


class Parts(NamedTuple):
    logs: Logs
    writer: Writer


async def begin(writer: Writer, generation_id: str) -> Generation:
    state = await writer.append(Generation(), generation_id, events.requested(generation_id))
    return await writer.append(state, generation_id, events.claimed(), events.started())


def shown(entries: list[Entry]) -> list[tuple[int, int, object]]:
    return [(entry.seq, entry.previous_seq, entry.events) for entry in entries]


class LogsContract:
    """Inherited by each implementation, which gives the fixture `parts`."""

    async def test_history_comes_before_start_returns_then_live(self, parts: Parts) -> None:
        generation_id, follower = events.new_id(), Follower()
        state = await begin(parts.writer, generation_id)
        followed = parts.logs.follow(generation_id, follower.take, follower.lost.append)
        await followed.start()
        assert len(follower.entries) == 2
        await parts.writer.append(state, generation_id, events.token(0))
        await follower.until(3)
        stored = await parts.logs.read(generation_id)
        assert shown(stored) == shown(follower.entries)
        assert await parts.logs.read(generation_id, stored[1].seq) == stored[2:]
        await followed.stop()

    async def test_a_new_log_is_followed_from_its_first_entry(self, parts: Parts) -> None:
        generation_id, follower = events.new_id(), Follower()
        followed = parts.logs.follow(generation_id, follower.take, follower.lost.append)
        await followed.start(is_new=True)
        await begin(parts.writer, generation_id)
        await follower.until(2)
        assert follower.entries[0].previous_seq == 0
        await followed.stop()

    async def test_nothing_comes_after_stop(self, parts: Parts) -> None:
        generation_id, follower, other = events.new_id(), Follower(), Follower()
        state = await begin(parts.writer, generation_id)
        followed = parts.logs.follow(generation_id, follower.take, follower.lost.append)
        witness = parts.logs.follow(generation_id, other.take, other.lost.append)
        await followed.start()
        await witness.start()
        await followed.stop()
        await followed.stop()
        await parts.writer.append(state, generation_id, events.token(0))
        await other.until(3)
        assert len(follower.entries) == 2
        await witness.stop()

    async def test_an_empty_log(self, parts: Parts) -> None:
        generation_id, follower = events.new_id(), Follower()
        followed = parts.logs.follow(generation_id, follower.take, follower.lost.append)
        await followed.start()
        assert follower.entries == []
        assert await parts.logs.read(generation_id) == []
        assert await parts.logs.last_entry(generation_id) is None
        await followed.stop()

    async def test_the_last_entry(self, parts: Parts) -> None:
        generation_id = events.new_id()
        state = await begin(parts.writer, generation_id)
        last = await parts.logs.last_entry(generation_id)
        assert last is not None
        assert (last.seq, last.events) == (state.last_seq, (events.claimed(), events.started()))

    async def test_of_two_writers_one_loses(self, parts: Parts) -> None:
        generation_id = events.new_id()
        state = await begin(parts.writer, generation_id)
        await parts.writer.append(state, generation_id, events.token(0))
        with pytest.raises(Fenced):
            await parts.writer.append(state, generation_id, events.token(0, "other"))

    async def test_a_closed_log_takes_nothing(self, parts: Parts) -> None:
        generation_id = events.new_id()
        state = await begin(parts.writer, generation_id)
        closed = await parts.writer.append(state, generation_id, FINISHED)
        with pytest.raises(LogClosed):
            await parts.writer.append(closed, generation_id, events.token(0))


class TestFakeLogs(LogsContract):
    @pytest.fixture
    def parts(self) -> Parts:
        logs = FakeLogs()
        return Parts(logs, logs)


class TestBusLogs(LogsContract):
    @pytest.fixture
    def parts(self, bus: Bus) -> Parts:
        return Parts(BusLogs(bus, silence_s=0.5), LogWriter(bus))

    async def test_a_poke_reaches_the_engines_of_the_model(self, bus: Bus, parts: Parts) -> None:
        from services.bus.tasks import on_poke

        heard: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        set_heard: Callable[[str], None] = heard.set_result
        subscription = await on_poke(bus, events.MODEL_KEY, set_heard)
        await bus.flush()
        await parts.logs.poke(events.MODEL_KEY, "some-id")
        assert await heard == "some-id"
        await subscription.unsubscribe()
