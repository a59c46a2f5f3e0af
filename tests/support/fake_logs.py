"""An in-memory stand-in for the logs on the broker and for a bucket, with a record of what was asked.

Kept honest by tests/contract/test_logs.py and test_keys.py, which the real ones pass too.
"""

from collections.abc import Callable
from typing import NamedTuple

from schemas.events import Event
from schemas.generation import Generation, apply_entry
from services.bus.errors import Fenced, KeyConflict, LogClosed
from services.bus.log import Entry
from services.streams.logs import OnEntry, OnLost


class FakeFollowedLog:
    """Delivers history at start, then every append."""

    def __init__(
        self, logs: "FakeLogs", generation_id: str, on_entry: OnEntry, on_lost: OnLost
    ) -> None:
        self.lose = on_lost
        self._logs = logs
        self._generation_id = generation_id
        self._on_entry = on_entry
        self._last_seq = 0
        self.is_running = False

    async def start(self, *, is_new: bool = False) -> None:
        if (error := self._logs.error) is not None:
            raise error
        self.is_running = True
        for entry in [] if is_new else self._logs.entries(self._generation_id):
            self.deliver(entry)

    async def stop(self) -> None:
        self.is_running = False

    def deliver(self, entry: Entry) -> None:
        if self.is_running and entry.seq > self._last_seq:
            self._last_seq = entry.seq
            self._on_entry(entry)


class FakeLogs:
    """Logs and their writer. followed: every follower that was made; pokes: (model_key, id).

    error: raised by whatever reads next. before_append: called once before the next append, as
    another writer would come in between.
    """

    def __init__(self) -> None:
        self._stored: dict[str, list[Entry]] = {}
        self._seq = 0
        self.followed: list[tuple[str, FakeFollowedLog]] = []
        self.pokes: list[tuple[str, str]] = []
        self.reads: list[str] = []
        self.error: Exception | None = None
        self.before_append: Callable[[], None] | None = None

    def follow(self, generation_id: str, on_entry: OnEntry, on_lost: OnLost) -> FakeFollowedLog:
        followed = FakeFollowedLog(self, generation_id, on_entry, on_lost)
        self.followed.append((generation_id, followed))
        return followed

    async def read(self, generation_id: str, after_seq: int = 0) -> list[Entry]:
        self.reads.append(generation_id)
        return [entry for entry in self.entries(generation_id) if entry.seq > after_seq]

    async def last_entry(self, generation_id: str) -> Entry | None:
        entries = self.entries(generation_id)
        return entries[-1] if entries else None

    async def poke(self, model_key: str, generation_id: str) -> None:
        self.pokes.append((model_key, generation_id))

    async def append(self, state: Generation, generation_id: str, *events: Event) -> Generation:
        before, self.before_append = self.before_append, None
        if before is not None:
            before()
        if state.is_closed:
            raise LogClosed(generation_id)
        entries = self.entries(generation_id)
        if state.last_seq != (entries[-1].seq if entries else 0):
            raise Fenced(generation_id)
        return apply_entry(state, self.write(generation_id, *events), events)

    def entries(self, generation_id: str) -> list[Entry]:
        return self._stored.get(generation_id, [])

    def write(self, generation_id: str, *events: Event) -> int:
        """Store an entry, whoever was first, and deliver it; its sequence."""
        entries = self._stored.setdefault(generation_id, [])
        self._seq += 1
        entry = Entry(self._seq, entries[-1].seq if entries else 0, events)
        entries.append(entry)
        for followed_id, followed in list(self.followed):
            if followed_id == generation_id:
                followed.deliver(entry)
        return entry.seq

    @property
    def n_running(self) -> int:
        return sum(followed.is_running for _, followed in self.followed)


class FakeValue(NamedTuple):
    value: bytes
    revision: int


class FakeKeys:
    """A bucket. before_write: called once before the next write, as another writer would."""

    def __init__(self) -> None:
        self._values: dict[str, FakeValue] = {}
        self._revision = 0
        self.before_write: Callable[[], None] | None = None

    async def get(self, key: str) -> FakeValue | None:
        return self._values.get(key)

    async def create(self, key: str, value: bytes) -> int:
        return await self.update(key, value, 0)

    async def update(self, key: str, value: bytes, revision: int, ttl_s: int | None = None) -> int:
        before, self.before_write = self.before_write, None
        if before is not None:
            before()
        stored = self._values.get(key)
        if revision != (0 if stored is None else stored.revision):
            raise KeyConflict(key)
        return self.put(key, value)

    async def delete(self, key: str) -> None:
        self._values.pop(key, None)

    async def entries(self, pattern: str) -> dict[str, bytes]:
        start = pattern.removesuffix("*")
        return {key: v.value for key, v in self._values.items() if key.startswith(start)}

    def put(self, key: str, value: bytes) -> int:
        self._revision += 1
        self._values[key] = FakeValue(value, self._revision)
        return self._revision
