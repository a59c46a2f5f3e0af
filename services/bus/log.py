"""The log of one generation: fenced append and reading.

Every append states the subject's expected last sequence, so of two writers one loses, always. The
caller keeps one append in flight per generation; appends of different generations are pipelined.
"""

import asyncio
import time
from collections.abc import AsyncGenerator
from typing import NamedTuple

from schemas import subjects
from schemas.events import Event, Requested, Terminal, decode_entry, encode_entry
from schemas.generation import Generation, apply_entry
from services.bus.ack_pipe import AckPipe, PublishRefused
from services.bus.connection import Bus
from services.bus.direct_get import DirectReader, Shrunk
from services.bus.ended import hint
from services.bus.errors import (
    BusUnavailable,
    Fenced,
    LogClosed,
    LogPurged,
    MessageTooLarge,
    StoreFull,
)
from services.bus.jetstream import api, last_message

WRONG_LAST_SEQUENCE = (10071, 10164)
STORE_FULL = (10077, 10023)
RETRY_WAIT_S = 0.2
STALE_REPLICA_WAIT_S = 0.05
OUTAGE_PATIENCE_S = 30.0


class Entry(NamedTuple):
    """One stored entry. seq: its stream sequence. previous_seq: of the entry before it in this log,
    0 for the first one and −1 where not known."""

    seq: int
    previous_seq: int
    events: tuple[Event, ...]
    data: bytes = b""


class LogWriter:
    """Appends to logs. One per process is enough; event-loop thread only."""

    def __init__(self, bus: Bus, *, patience_s: float = OUTAGE_PATIENCE_S) -> None:
        """patience_s: how long an append survives a broker that does not answer."""
        self._bus = bus
        self._acks = bus.part(AckPipe)
        self._patience_s = patience_s

    async def append(self, state: Generation, generation_id: str, *events: Event) -> Generation:
        """Store `events` as the next entry and return the state after it.

        After a lost acknowledgement the log is read back before anything else is tried, so the entry
        is stored once or not at all. Raises LogClosed, Fenced, MessageTooLarge, StoreFull, and
        BusUnavailable when the broker stayed away (the entry may then be stored or not).
        """
        if state.is_closed:
            raise LogClosed(f"generation {generation_id} has ended")
        data = encode_entry(events)
        if len(data) > self._bus.max_message_bytes:
            raise MessageTooLarge(f"an entry of {len(data)} bytes")
        begun_at = time.monotonic()
        try:
            seq = await self._store(generation_id, state.last_seq, data)
        except Fenced:
            self._bus.counters.n_fenced += 1
            raise
        self._bus.counters.on_append(events, time.monotonic() - begun_at)
        if isinstance(events[-1], Terminal):
            hint(self._bus, generation_id)
        return apply_entry(state, seq, events)

    async def _store(self, generation_id: str, last_seq: int, data: bytes) -> int:
        subject = subjects.generation(generation_id)
        headers = {"Nats-Expected-Last-Subject-Sequence": str(last_seq)}
        try:
            return await self._acks.publish(subject, data, headers)
        except PublishRefused as refusal:
            if refusal.code in STORE_FULL:
                raise StoreFull(str(refusal)) from refusal
            if refusal.code not in WRONG_LAST_SEQUENCE:
                raise BusUnavailable(str(refusal)) from refusal
        except BusUnavailable:
            pass
        return await self._settle(generation_id, last_seq, data)

    async def _settle(self, generation_id: str, last_seq: int, data: bytes) -> int:
        """Find out what became of an append without a clear answer, and repeat it if it was lost."""
        subject = subjects.generation(generation_id)
        headers = {"Nats-Expected-Last-Subject-Sequence": str(last_seq)}
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + self._patience_s
        while True:
            try:
                after = await read_log(self._bus, generation_id, last_seq)
                if after:
                    return _own_or_fenced(after[0], data, generation_id)
                return await self._acks.publish(subject, data, headers)
            except PublishRefused as refusal:
                if refusal.code in STORE_FULL:
                    raise StoreFull(str(refusal)) from refusal
            except LogPurged as error:
                raise Fenced(f"generation {generation_id} ended long ago") from error
            except BusUnavailable:
                if loop.time() > give_up_at:
                    raise
            await asyncio.sleep(RETRY_WAIT_S)


def _own_or_fenced(first: Entry, data: bytes, generation_id: str) -> int:
    if first.data == data:
        return first.seq
    raise Fenced(f"another writer was first in the log of {generation_id}")


async def read_log(bus: Bus, generation_id: str, after_seq: int = 0) -> list[Entry]:
    """All entries with a sequence > after_seq, up to the last one that the leader knows.

    Raises BusUnavailable, LogPurged, and SchemaError for an entry that is none of ours.
    """
    pieces = read_pieces(bus, generation_id, after_seq)
    return [entry async for piece in pieces for entry in piece]


async def read_pieces(
    bus: Bus, generation_id: str, after_seq: int = 0
) -> AsyncGenerator[list[Entry]]:
    """The same piece by piece, as they arrive, so that a reader can begin. Where LogPurged is raised,
    no entry came that does not follow the one before it. after_seq: 0, or that of a stored entry."""
    last = await last_entry(bus, generation_id)
    if last is None and after_seq > 0:
        raise LogPurged(f"the log of {generation_id} was purged")
    if last is None or last.seq <= after_seq:
        return
    if last.events and isinstance(last.events[0], Requested):  # it is the first one, too
        yield [last._replace(previous_seq=0)]
        return
    n_left = 1
    while after_seq < last.seq:
        try:
            async for piece in _read_once(bus, generation_id, after_seq, n_left):
                if piece[0].seq == last.seq and after_seq > 0:  # or all that a purge has left
                    await _check_purge(bus, generation_id, n_left=2)
                yield piece
                after_seq, n_left = piece[-1].seq, 1
        except Shrunk as shrunk:
            n_left = shrunk.n_left
            await _check_purge(bus, generation_id, n_left)
        if after_seq < last.seq:  # a replica that lags behind answered
            await asyncio.sleep(STALE_REPLICA_WAIT_S)


async def last_entry(bus: Bus, generation_id: str) -> Entry | None:
    """The last entry, from the leader; None for an empty log. Raises BusUnavailable."""
    found = await last_message(bus, subjects.GENERATIONS_STREAM, subjects.generation(generation_id))
    return None if found is None else Entry(found.seq, -1, decode_entry(found.data), found.data)


async def read_generation(bus: Bus, generation_id: str) -> Generation:
    """The folded state of a log. Raises BusUnavailable."""
    state = Generation()
    for entry in await read_log(bus, generation_id):
        state = apply_entry(state, entry.seq, entry.events)
    return state


async def _read_once(
    bus: Bus, generation_id: str, after_seq: int, n_left: int
) -> AsyncGenerator[list[Entry]]:
    reader, subject = bus.part(DirectReader), subjects.generation(generation_id)
    previous = after_seq
    stream = subjects.GENERATIONS_STREAM
    async for batch in reader.whole(stream, subject, after_seq + 1, n_left):
        piece: list[Entry] = []
        for message in batch:
            seq = message.seq
            piece.append(Entry(seq, previous, decode_entry(message.data), message.data))
            previous = seq
        yield piece


async def _check_purge(bus: Bus, generation_id: str, n_left: int) -> None:
    """Whether entries that were there are gone, by the leader: it purges a log down to one entry, or
    to none. Raises LogPurged, BusUnavailable."""
    n_stored = await count_entries(bus, generation_id)
    if n_stored == 0 or (n_stored == 1 and n_left != 1):
        raise LogPurged(f"the log of {generation_id} was purged while it was read")


async def count_entries(bus: Bus, generation_id: str) -> int:
    """How many entries the leader holds. Raises BusUnavailable."""
    subject = subjects.generation(generation_id)
    path = f"STREAM.INFO.{subjects.GENERATIONS_STREAM}"
    info = await api(bus, path, {"subjects_filter": subject})
    if "state" not in info:
        raise BusUnavailable(f"cannot count the entries of {generation_id}: {info.get('error')}")
    return int((info["state"].get("subjects") or {}).get(subject, 0))
