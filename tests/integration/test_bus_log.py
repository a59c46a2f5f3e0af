"""The fenced append and the readers, on a real nats-server."""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator

import pytest

from schemas.events import Cancelled, Finished, Tokens, Usage, encode_entry
from schemas.generation import Generation
from services.bus import live_log
from services.bus.config import BusSettings
from services.bus.connection import Bus, connect
from services.bus.ended import HintQueue
from services.bus.errors import Fenced, LogClosed, LogPurged, MessageTooLarge
from services.bus.live_log import LiveLog
from services.bus.log import (
    Entry,
    LogWriter,
    count_entries,
    last_entry,
    read_generation,
    read_log,
    read_pieces,
)
from services.bus.stored_logs import last_entries, purge_log, stored_logs
from services.bus.topology import ensure_topology
from services.cli.broker import Broker, start_broker
from tests.support import events

FINISHED = Finished(usage=Usage(n_prompt=3, n_predicted=2))


async def write_log(writer: LogWriter, generation_id: str, n_tokens: int) -> Generation:
    state = await writer.append(Generation(), generation_id, events.requested(generation_id))
    state = await writer.append(state, generation_id, events.claimed())
    for index in range(n_tokens):
        state = await writer.append(state, generation_id, events.token(index))
    return state


async def test_entries_come_back_in_order_and_complete(bus: Bus) -> None:
    generation_id = events.new_id()
    state = await write_log(LogWriter(bus), generation_id, 1100)
    entries = await read_log(bus, generation_id)
    assert len(entries) == 1102
    assert entries[-1].seq == state.last_seq
    assert [e.events[0].index for e in entries[2:]] == list(range(1100))  # type: ignore[union-attr]
    assert await read_log(bus, generation_id, entries[1000].seq) == entries[1001:]
    assert await read_log(bus, generation_id, state.last_seq) == []


async def test_several_events_in_one_entry(bus: Bus) -> None:
    generation_id = events.new_id()
    writer = LogWriter(bus)
    state = await write_log(writer, generation_id, 1)
    state = await writer.append(state, generation_id, events.token(1), FINISHED)
    assert state.is_closed
    last = await last_entry(bus, generation_id)
    assert last is not None
    assert last.events == (events.token(1), FINISHED)
    assert await read_generation(bus, generation_id) == state


async def test_of_two_writers_one_loses(bus: Bus) -> None:
    generation_id = events.new_id()
    writer = LogWriter(bus)
    state = await write_log(writer, generation_id, 1)
    cancelled = await writer.append(state, generation_id, Cancelled(by="gateway", reason="stopped"))
    with pytest.raises(Fenced):
        await writer.append(state, generation_id, events.token(1))
    with pytest.raises(LogClosed):
        await writer.append(cancelled, generation_id, events.token(1))
    assert (await read_generation(bus, generation_id)).n_tokens == {0: 1}


async def test_a_stored_entry_whose_acknowledgement_was_lost_is_not_stored_again(bus: Bus) -> None:
    generation_id = events.new_id()
    writer = LogWriter(bus)
    state = await write_log(writer, generation_id, 1)
    # It got there by another way, as if the first acknowledgement had been lost.
    await bus.js.publish(f"gen.{generation_id}", encode_entry([events.token(1)]))
    state = await writer.append(state, generation_id, events.token(1))
    assert state.n_tokens == {0: 2}
    assert len(await read_log(bus, generation_id)) == 4


async def test_an_entry_over_the_limit_is_refused_before_it_is_sent(bus: Bus) -> None:
    generation_id = events.new_id()
    huge = Tokens(index=0, ids=(1,), texts=("x" * bus.nc.max_payload,))
    with pytest.raises(MessageTooLarge):
        await LogWriter(bus).append(Generation(), generation_id, huge)
    assert bus.is_connected


async def test_an_unknown_log_is_empty(bus: Bus) -> None:
    assert await read_log(bus, events.new_id()) == []
    assert await last_entry(bus, events.new_id()) is None


class Recorder:
    """Collects entries and wakes who waits for the n-th."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.changed = asyncio.Event()

    def __call__(self, entry: Entry) -> None:
        self.entries.append(entry)
        self.changed.set()

    async def wait_for(self, n: int) -> None:
        async with asyncio.timeout(20):
            while len(self.entries) < n:
                self.changed.clear()
                await self.changed.wait()


async def test_a_reader_that_comes_in_the_middle_misses_nothing(bus: Bus) -> None:
    generation_id = events.new_id()
    writer = LogWriter(bus)
    state = await write_log(writer, generation_id, 50)
    early, late = Recorder(), Recorder()
    readers = [LiveLog(bus, generation_id, early), LiveLog(bus, generation_id, late)]
    await readers[0].start()
    for index in range(50, 80):
        state = await writer.append(state, generation_id, events.token(index))
    starting = asyncio.create_task(readers[1].start())
    for index in range(80, 120):
        state = await writer.append(state, generation_id, events.token(index))
    await writer.append(state, generation_id, FINISHED)
    await starting
    await early.wait_for(123)
    await late.wait_for(123)
    assert [e.seq for e in early.entries] == [e.seq for e in await read_log(bus, generation_id)]
    assert early.entries[2].events == late.entries[2].events
    for reader in readers:
        await reader.stop()


async def test_a_lost_live_message_is_filled_from_history(bus: Bus) -> None:
    generation_id = events.new_id()
    writer = LogWriter(bus)
    recorder = Recorder()
    reader = LiveLog(bus, generation_id, recorder, silence_s=0.1)
    await reader.start(is_new=True)
    state = await write_log(writer, generation_id, 1)
    await recorder.wait_for(3)
    assert reader._subscription is not None
    await reader._subscription.unsubscribe()  # deaf: only the question after silence can help
    await writer.append(state, generation_id, FINISHED)
    await recorder.wait_for(4)
    assert recorder.entries[-1].events == (FINISHED,)
    await reader.stop()


async def test_what_stays_silent_is_asked_after_less_and_less_often(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_at: list[float] = []
    fourth = asyncio.Event()

    def read(of: Bus, generation_id: str, after_seq: int) -> AsyncGenerator[list[Entry]]:
        asked_at.append(asyncio.get_running_loop().time())
        if len(asked_at) == 4:
            fourth.set()
        return read_pieces(of, generation_id, after_seq)

    monkeypatch.setattr(live_log, "read_pieces", read)
    recorder = Recorder()
    generation_id = events.new_id()
    reader = LiveLog(bus, generation_id, recorder, silence_s=0.05)
    begun_at = asyncio.get_running_loop().time()
    await reader.start(is_new=True)
    await asyncio.wait_for(fourth.wait(), 10)
    assert asked_at[-1] - begun_at >= 0.05 * (1 + 2 + 4 + 8) - 0.01
    assert reader._subscription is not None
    await write_log(LogWriter(bus), generation_id, 1)  # silent no more: asked after soon again
    await recorder.wait_for(3)
    n_before = len(asked_at)
    await reader._subscription.unsubscribe()
    state = await read_generation(bus, generation_id)
    await LogWriter(bus).append(state, generation_id, FINISHED)
    await recorder.wait_for(4)
    assert len(asked_at) > n_before
    await reader.stop()


async def test_a_restart_of_the_broker_loses_and_doubles_nothing(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("restarted")
    broker = start_broker(folder)
    settings = BusSettings(url=broker.url, token=broker.token)
    bus = await connect(settings, name="restart")
    await ensure_topology(bus)
    generation_id = events.new_id()
    recorder = Recorder()
    reader = LiveLog(bus, generation_id, recorder, silence_s=0.2)
    await reader.start(is_new=True)
    writer = LogWriter(bus)
    state = await write_log(writer, generation_id, 5)
    for index in range(5, 120):
        if index in (30, 80):
            broker = _restart(broker, folder)
        state = await writer.append(state, generation_id, events.token(index))
    await recorder.wait_for(122)
    assert [e.events[0].index for e in recorder.entries[2:]] == list(range(120))  # type: ignore[union-attr]
    assert await read_generation(bus, generation_id) == state
    await reader.stop()
    await bus.close()
    broker.stop()


def _restart(broker: Broker, folder: os.PathLike[str]) -> Broker:
    os.kill(broker.pid, signal.SIGKILL)
    broker.process.wait()
    return start_broker(str(folder), token=broker.token, port=broker.port)


@pytest.mark.parametrize("keep_last", [True, False])
async def test_a_purge_under_a_reader_leaves_no_gap(bus: Bus, keep_last: bool) -> None:
    generation_id, n_read = events.new_id(), 0
    state = await write_log(LogWriter(bus), generation_id, 700)
    await LogWriter(bus).append(state, generation_id, FINISHED)

    async def read() -> None:
        nonlocal n_read
        async for piece in read_pieces(bus, generation_id):
            n_read += len(piece)
            await purge_log(bus, generation_id, keep_last=keep_last)

    with pytest.raises(LogPurged):
        await read()
    assert 0 < n_read < 700, "nothing after the gap"
    assert len(await read_log(bus, generation_id)) == int(keep_last)
    assert await count_entries(bus, generation_id) == int(keep_last)


async def test_all_logs_are_listed_with_their_last_entries(bus: Bus) -> None:
    ids = [events.new_id() for _ in range(3)]
    states = [await write_log(LogWriter(bus), each, n) for n, each in enumerate(ids)]
    stored = await stored_logs(bus)
    assert [stored[each] for each in ids] == [2, 3, 4]
    found = await last_entries(bus, [*ids, events.new_id()])
    assert [found[each].seq for each in ids] == [state.last_seq for state in states]
    assert len(found) == 3


async def test_an_end_gives_one_hint(bus: Bus) -> None:
    generation_id = events.new_id()
    state = await write_log(LogWriter(bus), generation_id, 1)
    await LogWriter(bus).append(state, generation_id, FINISHED)
    queue = HintQueue(bus)
    hints = [hint for hint in await queue.fetch(100) if hint.generation_id == generation_id]
    assert len(hints) == 1
    await hints[0].nak(0)
    (again,) = [hint for hint in await queue.fetch(100) if hint.generation_id == generation_id]
    await again.ack()
    await queue.stop()
