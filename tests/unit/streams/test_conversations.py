"""Conversations over a fake bucket: swapping, owning, looking up, noting ends."""

import msgspec
import pytest

from schemas import codec, subjects
from schemas.tasks import ConversationEntry
from services.streams.conversations import Conversations
from services.streams.tape import render
from tests.golden.cases import CASES, CREATED_AT_MS, GENERATION_ID, Case
from tests.golden.write import tape_of
from tests.support.fake_logs import FakeKeys, FakeLogs

CASE = CASES["resumable.openai.chat"]  # of the conversation `talk`, by the caller ""
N_BYTES = tape_of(CASE).n_bytes


@pytest.fixture
def keys() -> FakeKeys:
    return FakeKeys()


@pytest.fixture
def logs() -> FakeLogs:
    return FakeLogs()


@pytest.fixture
def conversations(keys: FakeKeys, logs: FakeLogs) -> Conversations:
    return Conversations(keys, logs)


def entry(conversation: str, generation_id: str = GENERATION_ID) -> ConversationEntry:
    return ConversationEntry(
        conversation_id=conversation,
        generation_id=generation_id,
        dialect="openai.chat",
        started_at_s=CREATED_AT_MS // 1000,
    )


async def test_a_swap_says_what_was_replaced(conversations: Conversations) -> None:
    assert await conversations.swap("me", "talk", entry("talk", "one")) is None
    assert await conversations.swap("me", "talk", entry("talk", "two")) == entry("talk", "one")
    assert await conversations.find("me", "talk") == entry("talk", "two")


@pytest.mark.parametrize("is_first", [True, False])
async def test_a_swap_that_comes_second_replaces_the_one_in_between(
    conversations: Conversations, keys: FakeKeys, is_first: bool
) -> None:
    if not is_first:
        await conversations.swap("me", "talk", entry("talk", "one"))
    key = subjects.conversation_key("me", "talk")
    between = codec.encode(entry("talk", "between"))
    keys.before_write = lambda: keys.put(key, between) and None
    assert await conversations.swap("me", "talk", entry("talk", "two")) == entry("talk", "between")


async def test_others_do_not_see_it(conversations: Conversations) -> None:
    await conversations.swap("me", "talk", entry("talk"))
    assert await conversations.find("you", "talk") is None
    assert await conversations.lookup("you", ["talk"]) == []
    await conversations.remove("you", "talk")
    assert await conversations.find("me", "talk") is not None
    await conversations.remove("me", "talk")
    await conversations.remove("me", "talk")
    assert await conversations.find("me", "talk") is None


async def test_lookup_finds_ids_and_their_variants_in_the_order_asked_for(
    conversations: Conversations, logs: FakeLogs
) -> None:
    write(logs, CASE[:1])
    for name in ("talk::b/c", "talk", "other::b/c", "talking"):
        await conversations.swap("me", name, entry(name))
    found = await conversations.lookup("me", ["other::b/c", "nobody", "talk", "other::b/c"])
    assert found[0].conversation_id == "other::b/c"
    assert {each.conversation_id for each in found[1:]} == {"talk", "talk::b/c"}
    assert len(found) == 3
    assert logs.reads == [], "no log was read"


async def test_an_end_is_noted_once_and_only_for_the_generation_that_is_shown(
    conversations: Conversations,
) -> None:
    await conversations.swap("me", "talk", entry("talk", "one"))
    await conversations.mark_done("me", "talk", "zero", n_bytes=1, at_s=1)
    assert await conversations.find("me", "talk") == entry("talk", "one")
    await conversations.mark_done("me", "talk", "one", n_bytes=7, at_s=9)
    await conversations.mark_done("me", "talk", "one", n_bytes=8, at_s=10)
    await conversations.mark_done("me", "unknown", "one", n_bytes=8, at_s=10)
    done = await conversations.find("me", "talk")
    assert done == msgspec.structs.replace(
        entry("talk", "one"), is_done=True, n_bytes=7, completed_at_s=9
    )


async def test_an_end_is_not_noted_over_a_newer_generation(
    conversations: Conversations, keys: FakeKeys
) -> None:
    await conversations.swap("me", "talk", entry("talk", "one"))
    key, newer = subjects.conversation_key("me", "talk"), entry("talk", "two")
    keys.before_write = lambda: keys.put(key, codec.encode(newer)) and None
    await conversations.mark_done("me", "talk", "one", n_bytes=7, at_s=9)
    assert await conversations.find("me", "talk") == newer


def write(logs: FakeLogs, case: Case) -> None:
    for event in case:
        logs.write(GENERATION_ID, event)


async def test_lookup_repairs_an_end_that_nobody_noted(
    conversations: Conversations, logs: FakeLogs
) -> None:
    await conversations.swap("", "talk", entry("talk"))
    write(logs, CASE)
    for _ in range(2):
        (found,) = await conversations.lookup("", ["talk"])
        assert (found.is_done, found.n_bytes) == (True, N_BYTES)
        assert found.completed_at_s == CREATED_AT_MS // 1000
    assert logs.reads == [GENERATION_ID], "folded once"


async def test_lookup_does_not_fold_what_still_runs(
    conversations: Conversations, logs: FakeLogs
) -> None:
    await conversations.swap("", "talk", entry("talk"))
    write(logs, CASE[:-1])
    assert await conversations.lookup("", ["talk"]) == [entry("talk")]
    assert logs.reads == []


async def test_the_end_of_a_tape_is_noted_in_its_conversation(conversations: Conversations) -> None:
    await conversations.swap("", "talk", entry("talk"))
    await conversations.mark_tape_done(tape_of(CASE[:-1]))
    assert await conversations.find("", "talk") == entry("talk")
    await conversations.mark_tape_done(tape_of(CASES["simple.openai.chat"]))
    await conversations.mark_tape_done(render(GENERATION_ID, []))
    assert await conversations.find("", "talk") == entry("talk")
    await conversations.mark_tape_done(tape_of(CASE))
    found = await conversations.find("", "talk")
    assert found is not None
    assert (found.is_done, found.n_bytes) == (True, N_BYTES)
