"""All logs that the broker holds: for the archive, which looks through them and purges them."""

import contextlib
from collections.abc import Callable, Sequence

import nats.errors
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from schemas import subjects
from schemas.errors import SchemaError
from schemas.events import decode_entry
from services.bus.connection import Bus
from services.bus.direct_get import DirectReader
from services.bus.errors import BusUnavailable
from services.bus.jetstream import api
from services.bus.log import Entry

MAX_LAST = 500
_STREAM = subjects.GENERATIONS_STREAM


async def stored_logs(bus: Bus) -> dict[str, int]:
    """Every generation that has a log, and how many entries are there. Raises BusUnavailable."""
    found: dict[str, int] = {}
    while True:
        query: dict[str, object] = {
            "subjects_filter": subjects.GENERATIONS_SUBJECTS,
            "offset": len(found),
        }
        info = await api(bus, f"STREAM.INFO.{_STREAM}", query)
        if "state" not in info:
            raise BusUnavailable(f"cannot list the logs: {info.get('error')}")
        page: dict[str, int] = info["state"].get("subjects") or {}
        found |= {subjects.generation_id_of(subject): n for subject, n in page.items()}
        if not page or len(found) >= int(info.get("total", 0)):
            return found


async def last_entries(bus: Bus, generation_ids: Sequence[str]) -> dict[str, Entry]:
    """The last entries of these logs, as one replica knows them; unreadable ones are left out.
    Raises BusUnavailable."""
    reader, found = bus.part(DirectReader), dict[str, Entry]()
    for first in range(0, len(generation_ids), MAX_LAST):
        some = [subjects.generation(each) for each in generation_ids[first : first + MAX_LAST]]
        for subject, stored in (await reader.last_of(_STREAM, some)).items():
            try:
                entry = Entry(stored.seq, -1, decode_entry(stored.data), stored.data)
            except SchemaError:
                continue
            found[subjects.generation_id_of(subject)] = entry
    return found


async def purge_log(bus: Bus, generation_id: str, *, keep_last: bool) -> None:
    """Take a log off the broker, but for its last entry if `keep_last`: without it, its fence is gone,
    and whoever has the log in memory is told to let go of it. Idempotent. Raises BusUnavailable."""
    body: dict[str, object] = {"filter": subjects.generation(generation_id)}
    if keep_last:
        body["keep"] = 1
    reply = await api(bus, f"STREAM.PURGE.{_STREAM}", body)
    if not reply.get("success"):
        raise BusUnavailable(f"cannot purge {generation_id}: {reply.get('error')}")
    if not keep_last:
        with contextlib.suppress(nats.errors.Error, OSError):
            await bus.nc.publish(subjects.purged(generation_id))


async def on_purged(bus: Bus, callback: Callable[[str], None]) -> Subscription:
    """Call `callback(generation_id)` for every log that leaves the broker. A message may be lost."""

    async def on_message(message: Msg) -> None:
        callback(subjects.generation_id_of(message.subject))

    return await bus.nc.subscribe(subjects.purged("*"), cb=on_message)
