"""A gateway died before a conversation showed what it had opened: the sweep shows it."""

import msgspec
import pytest

from schemas import codec, subjects
from schemas.events import Cancelled, Requested
from schemas.tasks import ConversationEntry, Task
from services.bus.open_tasks import OpenTask
from services.streams.conversations import entry_of
from services.streams.ending import LogEnder
from services.streams.unshown import UNSHOWN_MS, Unshown
from tests.golden.cases import CASES, CREATED_AT_MS
from tests.support import events
from tests.support.fake_logs import FakeKeys, FakeLogs

CALLER, NAME = "c", "talk"
KEY = subjects.conversation_key(CALLER, NAME)
OPENED, *_ = CASES["simple.openai.chat"]


class Stage:
    """Logs and a conversation; `look` is what the sweep does."""

    def __init__(self) -> None:
        self.logs, self.keys = FakeLogs(), FakeKeys()
        self.now_ms = CREATED_AT_MS + UNSHOWN_MS
        ender = LogEnder(self.logs, self.logs)
        self.unshown = Unshown(self.keys, self.logs, ender, now_ms=lambda: self.now_ms)

    def opened(self, replaces: str | None = None) -> Requested:
        """A log of the conversation that is open."""
        assert isinstance(OPENED, Requested)
        requested = msgspec.structs.replace(
            OPENED,
            generation_id=events.new_id(),
            conversation=NAME,
            caller=CALLER,
            replaces=replaces,
            created_at_ms=CREATED_AT_MS,
        )
        self.logs.write(requested.generation_id, requested)
        return requested

    def show(self, requested: Requested) -> None:
        self.keys.put(KEY, codec.encode(entry_of(requested)))

    async def look(self, *opened: Requested) -> None:
        tasks = [
            Task(generation_id=r.generation_id, created_at_ms=CREATED_AT_MS, conversation=KEY)
            for r in opened
        ]
        await self.unshown.look([OpenTask(n, "k", task) for n, task in enumerate(tasks)])

    async def shown(self) -> str | None:
        stored = await self.keys.get(KEY)
        return (
            None if stored is None else codec.decode(stored.value, ConversationEntry).generation_id
        )

    def cancelled(self, requested: Requested) -> bool:
        (last, *_) = self.logs.entries(requested.generation_id)[-1].events
        return isinstance(last, Cancelled) and last.reason == "replaced"


@pytest.fixture
def stage() -> Stage:
    return Stage()


async def test_the_first_of_a_conversation_is_shown(stage: Stage) -> None:
    first = stage.opened()
    await stage.look(first)
    assert await stage.shown() == first.generation_id
    assert not stage.cancelled(first)


async def test_what_it_replaces_is_cancelled(stage: Stage) -> None:
    old = stage.opened()
    stage.show(old)
    new = stage.opened(replaces=old.generation_id)
    await stage.look(old, new)
    assert await stage.shown() == new.generation_id
    assert (stage.cancelled(old), stage.cancelled(new)) == (True, False)


async def test_what_was_replaced_and_still_runs_is_cancelled(stage: Stage) -> None:
    """The gateway died after the swap."""
    old = stage.opened()
    new = stage.opened(replaces=old.generation_id)
    stage.show(new)
    await stage.look(old, new)
    assert await stage.shown() == new.generation_id
    assert (stage.cancelled(old), stage.cancelled(new)) == (True, False)


async def test_one_that_was_never_shown_gives_way_to_a_later_one(stage: Stage) -> None:
    lost, later = stage.opened(), stage.opened()
    stage.show(later)
    await stage.look(lost, later)
    assert await stage.shown() == later.generation_id
    assert (stage.cancelled(lost), stage.cancelled(later)) == (True, False)


async def test_a_gateway_has_time_to_do_it_itself(stage: Stage) -> None:
    first = stage.opened()
    stage.now_ms -= 1
    await stage.look(first)
    assert await stage.shown() is None
    assert stage.logs.reads == []


async def test_what_is_shown_is_looked_at_once_and_not_read(stage: Stage) -> None:
    first = stage.opened()
    stage.show(first)
    await stage.look(first)
    await stage.keys.delete(KEY)
    await stage.look(first)
    assert await stage.shown() is None, "it was deleted later, and is not shown again"
    assert stage.logs.reads == []


async def test_what_has_ended_is_not_shown(stage: Stage) -> None:
    """Deleted while it ran: the log was closed first, then the key went."""
    first = stage.opened()
    stage.logs.write(first.generation_id, Cancelled(by="streams", reason="deleted"))
    await stage.look(first)
    assert await stage.shown() is None


async def test_a_swap_at_the_same_moment_wins(stage: Stage) -> None:
    first, second = stage.opened(), stage.opened()
    stage.keys.before_write = lambda: stage.show(second)
    await stage.look(first)
    assert await stage.shown() == second.generation_id
    assert not stage.cancelled(first)
    await stage.look(first, second)
    assert (stage.cancelled(first), stage.cancelled(second)) == (True, False)
