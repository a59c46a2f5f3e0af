"""A log that leaves the broker while somebody follows it: the end comes from the archive, or is missed aloud."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from schemas.events import Event, Finished, Usage
from schemas.generation import Generation
from services.bus import live_log
from services.bus.connection import Bus
from services.bus.errors import LogPurged
from services.bus.live_log import LiveLog
from services.bus.log import Entry, LogWriter, read_log
from services.bus.stored_logs import purge_log
from services.streams.archived_logs import ArchivedLogs
from services.streams.config import StreamsSettings
from services.streams.errors import StreamBroken, StreamGone
from services.streams.hub import Hub
from services.streams.logs import BusLogs
from tests.golden.cases import CASES
from tests.golden.write import tape_of
from tests.support import events
from tests.support.archive import renamed

FINISHED = Finished(usage=Usage(n_prompt=3, n_predicted=2))
SILENCE_S = 0.1
CASE = CASES["simple.openai.chat"]


class Follower:
    """What a reader of one log got. It hears nothing of what comes after `deaf`."""

    def __init__(self, bus: Bus, generation_id: str) -> None:
        self.entries: list[Entry] = []
        self.lost: asyncio.Future[LogPurged] = asyncio.get_running_loop().create_future()
        self.ended = asyncio.Event()
        on_lost = self.lost.set_result
        self.log = LiveLog(bus, generation_id, self._take, on_lost, silence_s=SILENCE_S)

    def _take(self, entry: Entry) -> None:
        self.entries.append(entry)
        if entry.events == (FINISHED,):
            self.ended.set()

    async def deaf(self) -> None:
        await make_deaf(self.log)


async def make_deaf(log: LiveLog) -> None:
    assert log._subscription is not None
    await log._subscription.unsubscribe()


async def write(bus: Bus, state: Generation, generation_id: str, *each: Event) -> Generation:
    for event in each:
        state = await LogWriter(bus).append(state, generation_id, event)
    return state


async def begun(bus: Bus, generation_id: str) -> Generation:
    first = events.requested(generation_id), events.claimed(), events.token(0)
    return await write(bus, Generation(), generation_id, *first)


@pytest.mark.parametrize("keeps_last", [False, True])
async def test_the_end_that_was_missed_is_not_made_up(bus: Bus, keeps_last: bool) -> None:
    generation_id = events.new_id()
    follower = Follower(bus, generation_id)
    state = await begun(bus, generation_id)
    await follower.log.start()
    await follower.deaf()
    await write(bus, state, generation_id, events.token(1), events.token(2), FINISHED)
    await purge_log(bus, generation_id, keep_last=keeps_last)
    async with asyncio.timeout(10):
        await follower.lost
    assert len(follower.entries) == 3
    await follower.log.stop()


@pytest.mark.parametrize("keeps_last", [False, True])
async def test_who_asks_for_what_follows_is_told(bus: Bus, keeps_last: bool) -> None:
    generation_id = events.new_id()
    state = await begun(bus, generation_id)
    await write(bus, state, generation_id, events.token(1), FINISHED)
    await purge_log(bus, generation_id, keep_last=keeps_last)
    with pytest.raises(LogPurged):
        await read_log(bus, generation_id, state.last_seq)


async def test_one_entry_that_follows_is_no_purge(bus: Bus) -> None:
    generation_id = events.new_id()
    state = await begun(bus, generation_id)
    await write(bus, state, generation_id, FINISHED)
    (entry,) = await read_log(bus, generation_id, state.last_seq)
    assert entry.events == (FINISHED,)


async def test_what_came_live_while_history_went_is_kept(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    generation_id, may_fail = events.new_id(), asyncio.Event()
    asked = asyncio.Event()

    async def read(of: Bus, name: str, after_seq: int) -> AsyncGenerator[list[Entry]]:
        asked.set()
        await may_fail.wait()
        raise LogPurged(name)
        yield []

    follower = Follower(bus, generation_id)
    await follower.log.start(is_new=True)
    monkeypatch.setattr(live_log, "read_pieces", read)
    state = await begun(bus, generation_id)
    async with asyncio.timeout(10):
        await asked.wait()
    await write(bus, state, generation_id, events.token(1), FINISHED)
    await bus.flush()
    may_fail.set()
    async with asyncio.timeout(10):
        await follower.ended.wait()
    assert len(follower.entries) == 5
    assert not follower.lost.done()
    await follower.log.stop()


class Cut:
    """A hub whose reader of one log was cut off before the end, which is in this archive only."""

    def __init__(self, bus: Bus, archived: list[Entry] | Exception | None = None) -> None:
        self.bus, self.archived = bus, archived
        logs = ArchivedLogs(BusLogs(bus, silence_s=SILENCE_S), self._read)
        self.hub = Hub(logs, StreamsSettings())
        self.generation_id = events.new_id()

    async def _read(self, generation_id: str) -> list[Entry] | None:
        assert generation_id == self.generation_id
        if isinstance(self.archived, Exception):
            raise self.archived
        return self.archived

    async def read(self) -> bytes:
        """What a reader gets who was there from the first token on."""
        case = [renamed(event, self.generation_id, {}) for event in CASE]
        state = await write(self.bus, Generation(), self.generation_id, *case[:4])
        with await self.hub.open(self.generation_id) as tape:
            reel = self.hub._reels[self.generation_id, None]
            await make_deaf(reel.followed._live)  # type: ignore[attr-defined]
            await write(self.bus, state, self.generation_id, *case[4:])
            if self.archived is None:
                self.archived = await read_log(self.bus, self.generation_id)
            await purge_log(self.bus, self.generation_id, keep_last=False)
            async with asyncio.timeout(10):
                return b"".join([chunk async for chunk in tape.read()])


async def test_a_reader_that_was_cut_off_goes_on_in_the_archive(bus: Bus) -> None:
    cut = Cut(bus)
    case = [renamed(event, cut.generation_id, {}) for event in CASE]
    assert await cut.read() == tape_of(case).cut(0)
    await cut.hub.close()


async def test_one_whose_end_is_nowhere_is_told(bus: Bus) -> None:
    cut = Cut(bus, StreamGone("What this generation said was not to be kept.", ""))
    with pytest.raises(StreamBroken, match="not to be kept"):
        await cut.read()
    assert cut.hub.n_tapes == 0
    await cut.hub.close()
