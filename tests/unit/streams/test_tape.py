"""A tape and its readers, without a hub."""

import asyncio
import json

import pytest

from schemas.events import Requested, Tokens
from services.bus.log import Entry
from services.streams.errors import StreamBroken
from services.streams.tape import MAX_CHUNK_BYTES, Tape, TapeReader
from tests.golden.cases import CASES, GENERATION_ID, Case, log, started, streamed
from tests.golden.write import tape_of

CASE = CASES["resumable.openai.chat"]
WHOLE = tape_of(CASE).cut(0)


class Feed:
    """Writes a case into a tape, entry by entry."""

    def __init__(self, case: Case = CASE) -> None:
        self.tape = Tape(GENERATION_ID)
        self._left = [Entry(i + 1, i, (event,)) for i, event in enumerate(case)]

    def write(self, n: int | None = None) -> None:
        n = len(self._left) if n is None else n
        for entry in self._left[:n]:
            self.tape.take(entry)
        del self._left[:n]


async def drain(reader: TapeReader) -> bytes:
    return b"".join([chunk async for chunk in reader])


async def test_a_reader_of_a_finished_tape_gets_one_chunk() -> None:
    feed = Feed()
    feed.write()
    assert [chunk async for chunk in feed.tape.read()] == [WHOLE]


async def test_many_readers_of_a_growing_tape_get_the_same() -> None:
    feed = Feed()
    tasks = [asyncio.create_task(drain(feed.tape.read())) for _ in range(50)]
    for _ in CASE:
        feed.write(1)
        await asyncio.sleep(0)
    assert set(await asyncio.gather(*tasks)) == {WHOLE}
    assert feed.tape.n_readers == 0


async def test_what_came_between_two_turns_is_one_chunk() -> None:
    feed = Feed()
    feed.write(6)
    reader = feed.tape.read()
    first = await anext(reader)
    feed.write()
    assert [first, *[chunk async for chunk in reader]] == [first, WHOLE[len(first) :]]


@pytest.mark.parametrize("offset", [0, 1, len(WHOLE) // 2, len(WHOLE) - 1, len(WHOLE), 10**9])
async def test_an_offset_in_bytes(offset: int) -> None:
    feed = Feed()
    early = asyncio.create_task(drain(feed.tape.read(offset)))
    await asyncio.sleep(0)
    feed.write()
    assert await early == await drain(feed.tape.read(offset)) == WHOLE[offset:]


@pytest.mark.parametrize("number", [0, 1, 3, 7, 8, 10**9])
async def test_an_offset_in_frames(number: int) -> None:
    feed = Feed()
    early = asyncio.create_task(drain(feed.tape.read(after_frame=number)))
    await asyncio.sleep(0)
    feed.write()
    rest = WHOLE[WHOLE.index(b"id: %d\n" % (number + 1)) :] if number < 7 else b""
    assert await early == await drain(feed.tape.read(after_frame=number)) == rest


async def test_waiting_for_the_start_and_the_end() -> None:
    feed = Feed()
    is_started = asyncio.create_task(feed.tape.wait_started())
    is_done = asyncio.create_task(feed.tape.wait_done())
    feed.write(2)
    await asyncio.sleep(0)
    assert not is_started.done()
    feed.write(1)
    await is_started
    assert not is_done.done()
    feed.write()
    await is_done


async def test_a_long_stream_is_handed_out_in_parts() -> None:
    tokens = [Tokens(index=i, ids=(i,), texts=("x" * 1000,)) for i in range(1000)]
    tape = tape_of(log("native.completion", streamed(), started(), *tokens))
    chunk = tape.cut(5)
    assert MAX_CHUNK_BYTES <= len(chunk) < MAX_CHUNK_BYTES + 2000
    assert tape.cut(5 + len(chunk)).startswith(b"data: ")


async def test_an_entry_that_cannot_be_rendered_interrupts_readers() -> None:
    feed = Feed()
    feed.write(4)
    reader = feed.tape.read()
    assert await anext(reader)
    waiting = asyncio.ensure_future(anext(reader))
    await asyncio.sleep(0)
    bad = Tokens(index=0, ids=(1, 2), texts=(b"no", b"text"))  # type: ignore[arg-type]
    feed.tape.take(Entry(99, 98, (bad,)))
    with pytest.raises(StreamBroken, match="entry 99"):
        await waiting
    with pytest.raises(StreamBroken):
        await feed.tape.wait_done()


async def test_a_log_of_a_newer_build_breaks_the_tape() -> None:
    newer = log("openai.chat", streamed(), render=99)
    tape = Tape(GENERATION_ID)
    tape.take(Entry(1, 0, (newer[0],)))
    with pytest.raises(StreamBroken, match="version 99"):
        await tape.wait_started()


async def test_a_reader_holds_the_tape_until_it_is_closed_even_if_it_never_read() -> None:
    tape = Feed().tape
    reader = tape.read()
    assert tape.n_readers == 1
    await reader.aclose()
    await reader.aclose()
    assert tape.n_readers == 0
    assert [chunk async for chunk in reader] == []


async def test_a_cancelled_reader_does_not_disturb_the_others() -> None:
    feed = Feed()
    first, second = (asyncio.create_task(drain(feed.tape.read())) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    feed.write()
    assert await second == WHOLE
    with pytest.raises(asyncio.CancelledError):
        await first


def test_an_end_before_the_beginning_is_seen_by_who_expects_it() -> None:
    """An engine closes the log of a gateway that came too late: then no `requested` is in it."""
    case = CASES["failed_early.openai.chat"]
    assert isinstance(case[0], Requested)
    tape = Tape(GENERATION_ID)
    tape.expect(case[0])
    tape.take(Entry(1, 0, (case[-1],)))
    assert tape.is_done
    assert tape.projection.failed_before_start is not None


def test_the_state_names_the_last_sequence_for_whoever_appends() -> None:
    assert tape_of(CASE).generation.last_seq == len(CASE)
    assert Tape(GENERATION_ID).generation.last_seq == 0


async def test_events_are_counted_without_pings() -> None:
    case = CASES["resumable.openai.responses"]
    feed = Feed(case)
    reader = feed.tape.read_after_event(2)
    reading = asyncio.create_task(drain(reader))
    await asyncio.sleep(0)
    feed.write()
    rest = await reading
    first = json.loads(rest.split(b"data: ")[1].split(b"\n")[0])
    assert first["sequence_number"] == 3
    assert feed.tape.cut(0).endswith(rest)
    assert await drain(feed.tape.read_after_event(999)) == b""
