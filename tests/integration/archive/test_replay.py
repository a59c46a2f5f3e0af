"""What is read of the archive is what was read of the broker, byte for byte, from every offset."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from schemas import subjects
from schemas.events import ChoiceEnd, Finished, Shifted, Timings, Usage
from schemas.params import Output, Params
from schemas.rpc import ArchiveQuestion
from services.bus.connection import Bus
from services.bus.rpc import serve
from services.streams.archive.serving import ArchiveDesk
from services.streams.bootstrap import create_hub
from services.streams.config import StreamsSettings
from services.streams.errors import StreamGone, StreamNotFound
from services.streams.projections import VIEWS
from services.streams.tape import Rendering, Tape
from tests.golden.cases import CASES, Case
from tests.support import events
from tests.support.archive import Rig, write_case

SHIFTED = "shifted"
N_TOKENS = 900


def shifted() -> Case:
    """A long log with a context shift in it."""
    params = Params(output=Output(stream=True))
    tokens = [events.token(index, f" {index}") for index in range(N_TOKENS)]
    end = ChoiceEnd(
        choice=0,
        stop_type="limit",
        n_predicted=N_TOKENS + 1,
        n_prompt=3,
        is_truncated=True,
        timings=Timings(),
    )
    last = type(tokens[0])(index=N_TOKENS, ids=(5,), texts=("!",), end=end)
    shift = Shifted(choice=0, index=500, n_keep=1, n_discard=100, n_past=256)
    return [
        events.requested("", params=params, conversation="c"),
        events.claimed(),
        events.started(),
        *tokens[:500],
        shift,
        *tokens[500:],
        last,
        Finished(usage=Usage(n_prompt=3, n_predicted=N_TOKENS + 1), at_ms=1),
    ]


ALL = CASES | {SHIFTED: shifted()}
RENDERINGS = (None, *(Rendering(view) for view in VIEWS if view))


@asynccontextmanager
async def served(bus: Bus, rig: Rig) -> AsyncIterator[ArchiveDesk]:
    desk = ArchiveDesk(2048)  # many pieces
    desk.open(rig.store)
    subscription = await serve(bus, subjects.ARCHIVE_RPC, ArchiveQuestion, desk.answer)
    await bus.flush()
    yield desk
    await subscription.unsubscribe()


async def shown(bus: Bus, generation_id: str) -> dict[object, tuple[bytes, object]]:
    """All bytes in every rendering, by a process that has nothing in memory, and the whole answer."""
    hub = create_hub(bus, StreamsSettings())
    found: dict[object, tuple[bytes, object]] = {}
    for rendering in RENDERINGS:
        with await hub.open(generation_id, rendering=rendering) as tape:
            await tape.wait_done()
            found[rendering] = (b"".join([chunk async for chunk in tape.read()]), result_of(tape))
    await hub.close()
    return found


def result_of(tape: Tape) -> object:
    return tape.result() if tape.rendering is None else None


@pytest.mark.parametrize("keep_last", [True, False], ids=["fence", "gone"])
async def test_archived_bytes_are_the_hot_ones(bus: Bus, rig: Rig, keep_last: bool) -> None:
    ids = {name: await write_case(bus, case) for name, case in ALL.items()}
    hot = {name: await shown(bus, generation_id) for name, generation_id in ids.items()}
    async with served(bus, rig):
        assert await rig.archive(*ids.values()) == len(ALL)
        for name, generation_id in ids.items():
            await rig.purge(generation_id, keep_last=keep_last)
            assert await shown(bus, generation_id) == hot[name], name


async def test_every_offset_of_an_archived_stream(bus: Bus, rig: Rig) -> None:
    generation_id = await write_case(bus, ALL["resumable.openai.chat"])
    hub = create_hub(bus, StreamsSettings())
    async with served(bus, rig):
        with await hub.open(generation_id) as tape:
            whole = b"".join([chunk async for chunk in tape.read()])
        await rig.archive(generation_id)
        await rig.purge(generation_id)
        await hub.close()
        hub = create_hub(bus, StreamsSettings())
        with await hub.open(generation_id) as tape:
            for offset in range(len(whole)):
                assert b"".join([chunk async for chunk in tape.read(offset)]) == whole[offset:]
    await hub.close()


async def test_a_purge_under_a_reader_shows_in_no_byte(bus: Bus, rig: Rig) -> None:
    generation_id = await write_case(bus, ALL[SHIFTED])
    hot = await shown(bus, generation_id)
    async with served(bus, rig):
        await rig.archive(generation_id)
        for keep_last in (True, False):
            hub = create_hub(bus, StreamsSettings())
            with await hub.open(generation_id) as tape:  # its first piece has come
                await rig.purge(generation_id, keep_last=keep_last)
                found = b"".join([chunk async for chunk in tape.read()])
            await hub.close()
            assert found == hot[None][0]


@pytest.mark.parametrize("content", ["hashes", "none"])
async def test_what_is_not_kept_is_gone_and_says_so(bus: Bus, rig: Rig, content: str) -> None:
    generation_id = await write_case(bus, ALL[SHIFTED], content=content, caller="me")
    hub = create_hub(bus, StreamsSettings())
    async with served(bus, rig):
        await rig.archive(generation_id)
        with await hub.open(generation_id) as tape:
            await tape.wait_done()  # it is still hot
        await hub.close()
        await rig.purge(generation_id)
        hub = create_hub(bus, StreamsSettings())
        with pytest.raises(StreamGone, match="not to be kept") as caught:
            await hub.open(generation_id)
    assert caught.value.caller == "me"
    await hub.close()


async def test_what_nobody_knows_is_not_found(bus: Bus, rig: Rig) -> None:
    hub = create_hub(bus, StreamsSettings())
    with pytest.raises(StreamNotFound):
        await hub.open(events.new_id())
    async with served(bus, rig):
        with pytest.raises(StreamNotFound):
            await hub.open(events.new_id())
    await hub.close()
