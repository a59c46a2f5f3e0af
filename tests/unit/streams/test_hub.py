"""The hub over recorded logs: sharing, lingering, failing, closing."""

import asyncio

import pytest

from schemas.events import Tokens
from services.bus.errors import BusUnavailable
from services.bus.log import Entry
from services.streams.config import StreamsSettings
from services.streams.errors import StreamBroken, StreamNotFound
from services.streams.hub import Hub
from services.streams.logs import OnEntry, OnLost
from services.streams.tape import Tape
from tests.golden.cases import CASES, GENERATION_ID
from tests.golden.write import tape_of
from tests.support.fake_logs import FakeLogs

CASE = CASES["simple.openai.chat"]
WHOLE = tape_of(CASE).cut(0)
ID = GENERATION_ID


@pytest.fixture
def logs() -> FakeLogs:
    return FakeLogs()


def hub_of(logs: FakeLogs, **settings: object) -> Hub:
    return Hub(logs, StreamsSettings(**settings))  # type: ignore[arg-type]


async def turns(n: int = 5) -> None:
    """Let everything that is ready, or due at once, run."""
    for _ in range(n):
        await asyncio.sleep(0)


async def read(hub: Hub, generation_id: str = ID) -> bytes:
    with await hub.open(generation_id) as tape:
        reader = tape.read()
    return b"".join([chunk async for chunk in reader])


async def test_one_log_is_followed_once_for_all_readers(logs: FakeLogs) -> None:
    hub = hub_of(logs)
    logs.write(ID, *CASE[:3])
    tasks = [asyncio.create_task(read(hub)) for _ in range(20)]
    await asyncio.sleep(0)
    for event in CASE[3:]:
        logs.write(ID, event)
        await asyncio.sleep(0)
    assert set(await asyncio.gather(*tasks)) == {WHOLE}
    assert len(logs.followed) == 1
    await hub.close()
    assert logs.n_running == 0


async def test_readers_of_a_log_whose_end_is_lost_are_interrupted(logs: FakeLogs) -> None:
    hub = hub_of(logs)
    logs.write(ID, *CASE[:3])
    reading = asyncio.create_task(read(hub))
    await turns()
    logs.followed[0][1].lose(BusUnavailable("nobody has it"))
    with pytest.raises(StreamBroken, match="nobody has it"):
        await reading
    assert hub.n_tapes == 0
    await hub.close()


async def test_a_finished_log_is_no_longer_followed_but_lingers(logs: FakeLogs) -> None:
    hub = hub_of(logs)
    logs.write(ID, *CASE)
    assert await read(hub) == WHOLE
    await asyncio.sleep(0)
    assert logs.n_running == 0
    assert await read(hub) == WHOLE
    assert len(logs.followed) == 1
    assert hub.n_tapes == 1
    await hub.close()


async def test_a_tape_without_readers_is_dropped_after_a_while(logs: FakeLogs) -> None:
    hub = hub_of(logs, linger_s=0.0)
    logs.write(ID, *CASE[:3])
    tape = await hub.open(ID)
    tape.release()
    tape.retain()  # somebody came in time
    assert hub.n_tapes == 1
    tape.release()
    await turns()
    assert hub.n_tapes == 0
    logs.write(ID, *CASE[3:])
    assert await read(hub) == WHOLE
    assert len(logs.followed) == 2
    await hub.close()


async def test_the_longest_unread_tapes_go_when_they_are_too_many(logs: FakeLogs) -> None:
    hub = hub_of(logs, linger_max_bytes=2 * len(WHOLE))
    for name in ("a", "b", "c"):
        logs.write(name, *CASE)
        assert await read(hub, name) == WHOLE
    assert [hub.peek(name) is not None for name in ("a", "b", "c")] == [False, True, True]
    await hub.close()


async def test_a_new_generation_is_read_from_its_first_event(logs: FakeLogs) -> None:
    hub = hub_of(logs)
    tape = await hub.open(ID, is_new=True, requested=CASE[0])  # type: ignore[arg-type]
    reader = tape.read()
    for event in CASE:
        logs.write(ID, event)
    assert b"".join([chunk async for chunk in reader]) == WHOLE
    tape.release()
    await hub.close()


async def test_an_empty_log_is_not_found_and_not_kept(logs: FakeLogs) -> None:
    hub = hub_of(logs)
    with pytest.raises(StreamNotFound):
        await hub.open(ID)
    assert hub.n_tapes == 0
    logs.write(ID, *CASE)
    assert await read(hub) == WHOLE
    await hub.close()


async def test_a_broker_that_stays_away_is_asked_again_the_next_time(logs: FakeLogs) -> None:
    hub = hub_of(logs)
    logs.write(ID, *CASE)
    logs.error = BusUnavailable("away")
    with pytest.raises(BusUnavailable):
        await hub.open(ID)
    logs.error = None
    assert await read(hub) == WHOLE
    await hub.close()


async def test_a_broken_tape_is_reported_and_not_kept(logs: FakeLogs) -> None:
    hub = hub_of(logs)
    logs.write(ID, *CASE[:3], Tokens(index=0, ids=(1, 2), texts=(b"no", b"text")))  # type: ignore[arg-type]
    with pytest.raises(StreamBroken):
        await read(hub)
    assert hub.n_tapes == 0
    await hub.close()


async def test_an_opener_that_gives_up_leaves_nothing_behind(logs: FakeLogs) -> None:
    hub = hub_of(logs, linger_s=0.0)
    logs.write(ID, *CASE[:3])
    opening = asyncio.create_task(hub.open(ID))
    await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    await turns()
    assert hub.n_tapes == 0
    await hub.close()
    assert logs.n_running == 0


async def test_who_wants_to_know_hears_of_beginnings_and_ends_once(logs: FakeLogs) -> None:
    hub = hub_of(logs)
    heard: list[tuple[str, Tape]] = []
    hub.when_opened(lambda tape: heard.append(("opened", tape)))
    hub.when_done(lambda tape: heard.append(("done", tape)))
    logs.write(ID, *CASE[:3])
    first, second = await hub.open(ID), await hub.open(ID)
    logs.write(ID, *CASE[3:])
    logs.write(ID, CASE[-1])
    assert heard == [("opened", first), ("done", first)]
    first.release()
    second.release()
    await hub.close()


async def test_closing_interrupts_readers_and_waits_for_background_work(logs: FakeLogs) -> None:
    hub = hub_of(logs)
    logs.write(ID, *CASE[:4])
    reading = asyncio.create_task(read(hub))
    finished: list[bool] = []

    async def work() -> None:
        await asyncio.sleep(0)
        finished.append(True)

    hub.spawn(work())
    await asyncio.sleep(0)
    await hub.close()
    assert finished == [True]
    with pytest.raises(StreamBroken):
        await reading


async def test_background_work_that_fails_is_logged(
    logs: FakeLogs, caplog: pytest.LogCaptureFixture
) -> None:
    hub = hub_of(logs)

    async def work() -> None:
        raise RuntimeError("disk on fire")

    hub.spawn(work())
    await hub.close()
    assert "disk on fire" in caplog.text


class SlowLog:
    """Delivers its first entry at once, the rest of its history when told to."""

    def __init__(self, logs: "SlowLogs", on_entry: OnEntry) -> None:
        self._logs = logs
        self._on_entry = on_entry

    async def start(self, *, is_new: bool = False) -> None:
        if self._logs.n_at_once:
            self._on_entry(Entry(1, 0, (CASE[0],)))
        await self._logs.may_go_on.wait()
        if self._logs.error is not None:
            raise self._logs.error
        self._on_entry(Entry(2, 1, tuple(CASE[1:])))

    async def stop(self) -> None:
        pass


class SlowLogs(FakeLogs):
    def __init__(self, n_at_once: int = 1) -> None:
        super().__init__()
        self.n_at_once = n_at_once
        self.may_go_on = asyncio.Event()

    def follow(self, generation_id: str, on_entry: OnEntry, on_lost: OnLost) -> SlowLog:  # type: ignore[override]
        return SlowLog(self, on_entry)


async def test_a_tape_opens_before_all_history_is_there() -> None:
    logs = SlowLogs()
    hub = hub_of(logs)
    with await hub.open(ID) as tape:
        assert not tape.is_started
        reader = tape.read()
        logs.may_go_on.set()
        assert b"".join([chunk async for chunk in reader]) == WHOLE
    await hub.close()


async def test_a_history_that_breaks_off_interrupts_its_readers() -> None:
    logs = SlowLogs()
    hub = hub_of(logs)
    tape = await hub.open(ID)
    reader = tape.read()
    tape.release()
    logs.error = BusUnavailable("away")
    logs.may_go_on.set()
    with pytest.raises(StreamBroken):
        await anext(reader)
    assert hub.n_tapes == 0
    await hub.close()


@pytest.mark.parametrize("n_at_once", [0, 1])
async def test_closing_does_not_wait_for_history(n_at_once: int) -> None:
    hub = hub_of(SlowLogs(n_at_once))
    reading = asyncio.create_task(read(hub))
    await turns()
    await hub.close()
    with pytest.raises(StreamBroken):
        await reading


async def test_a_new_log_is_open_when_it_is_followed() -> None:
    logs = SlowLogs(0)
    hub = hub_of(logs)
    opening = asyncio.create_task(hub.open(ID, is_new=True, requested=CASE[0]))  # type: ignore[arg-type]
    await turns()
    assert not opening.done()
    logs.may_go_on.set()
    (await opening).release()
    await hub.close()


async def test_what_left_the_broker_is_looked_for_anew(logs: FakeLogs) -> None:
    """Readers that are there read on; who comes later does not get it of the memory."""
    hub = hub_of(logs)
    logs.write(ID, *CASE)
    with await hub.open(ID) as tape:
        await tape.wait_done()
        hub.forget(ID)
        assert hub.peek(ID) is None
        assert tape.cut(0) == WHOLE
    assert hub.n_tapes == 0
    assert await read(hub) == WHOLE
    assert len(logs.followed) == 2
    await hub.close()


async def test_a_running_one_is_not_let_go_of(logs: FakeLogs) -> None:
    hub = hub_of(logs)
    logs.write(ID, *CASE[:3])
    with await hub.open(ID):
        hub.forget(ID)
        assert hub.n_tapes == 1
    await hub.close()
