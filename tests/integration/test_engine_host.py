"""Orders to an engine host over the real bus, carried out with programs that only wait."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from schemas import codec, subjects
from schemas.errors import RequestError
from schemas.lifecycle import HostPresence
from schemas.rpc import Done, StartEngine, StopEngine
from schemas.struct import Message
from services.bus.connection import Bus
from services.bus.kv import Bucket
from services.bus.rpc import ask
from services.cli import host
from services.cli.host import EngineHost
from services.cli.supervisor import Exit, Program
from tests.support.processes import wait_gone

WAIT = "import signal; print('up', flush=True); signal.pause()"
START = StartEngine(model_key="k", engine="e1")


class Hosted:
    """A host on the bus, and what it told of exits."""

    def __init__(self, bus: Bus, folder: Path) -> None:
        self.bus = bus
        self.exits: asyncio.Queue[Exit] = asyncio.Queue()
        self.folder = folder
        self.code = WAIT
        self.is_wanted = True
        self.host = EngineHost("h1", self._program, self._on_exit)

    def _program(self, order: StartEngine) -> Program:
        return Program(
            name=f"engine {order.engine}",
            command=(sys.executable, "-c", self.code),
            env={},
            log_file=self.folder / f"{order.engine}.log",
        )

    def _on_exit(self, exit_: Exit) -> bool:
        self.exits.put_nowait(exit_)
        return self.is_wanted

    async def order(self, order: Message) -> Done:
        return await ask(self.bus, subjects.host_rpc("h1"), order, Done)

    @property
    def pid(self) -> int:
        pid = self.host.pid_of("e1")
        assert pid is not None
        return pid


@pytest.fixture
async def hosted(bus: Bus, tmp_path: Path) -> AsyncIterator[Hosted]:
    hosted = Hosted(bus, tmp_path)
    async with host.serving(bus, hosted.host):
        yield hosted
        await hosted.host.stop(2)


async def test_orders_may_be_repeated(hosted: Hosted) -> None:
    assert await asyncio.gather(*(hosted.order(START) for _ in range(5))) == [Done()] * 5
    pid = hosted.pid
    await hosted.order(START)
    assert hosted.pid == pid
    stop = StopEngine(engine="e1", grace_s=2)
    assert await asyncio.gather(hosted.order(stop), hosted.order(stop)) == [Done()] * 2
    assert wait_gone(pid, 0)
    assert hosted.host.engines == ()
    assert hosted.exits.empty(), "an ordered stop is not an exit"


async def test_an_engine_that_dies_is_started_again(hosted: Hosted) -> None:
    await hosted.order(START)
    before = hosted.pid
    os.kill(before, signal.SIGKILL)
    exit_ = await asyncio.wait_for(hosted.exits.get(), 5)
    assert (exit_.name, exit_.code, exit_.n) == ("engine e1", -signal.SIGKILL, 1)
    async with asyncio.timeout(5):
        while hosted.host.pid_of("e1") in (None, before):  # noqa: ASYNC110 (a process, no event)
            await asyncio.sleep(0.01)
    assert hosted.pid != before


async def test_one_that_is_not_wanted_stays_down(hosted: Hosted) -> None:
    hosted.is_wanted = False
    hosted.code = "import sys; print('noise', flush=True); sys.exit('error: no such tensor')"
    await hosted.order(START)
    exit_ = await asyncio.wait_for(hosted.exits.get(), 5)
    assert (exit_.code, exit_.reason) == (1, "no such tensor")
    assert hosted.host.pid_of("e1") is None
    assert (hosted.folder / "e1.log").read_text() == "noise\nerror: no such tensor\n"


async def test_what_it_leaves_behind_is_killed(hosted: Hosted) -> None:
    hosted.is_wanted = False
    child = "import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', sys.argv[1]])"
    hosted.code = f"import sys; sys.argv.append({WAIT!r}); {child}; print(p.pid, flush=True)"
    await hosted.order(START)
    exit_ = await asyncio.wait_for(hosted.exits.get(), 5)
    grandchild = next(int(line) for line in exit_.tail if line.isdigit())
    assert wait_gone(grandchild, 2)


async def test_a_stopping_host_starts_nothing(hosted: Hosted) -> None:
    await hosted.host.stop(2)
    with pytest.raises(RequestError, match="host h1 is stopping"):
        await hosted.order(START)


async def test_its_presence_is_told(hosted: Hosted, bus: Bus) -> None:
    told: asyncio.Queue[HostPresence] = asyncio.Queue()

    def on_entry(_key: str, value: bytes | None) -> None:
        if value is not None:
            told.put_nowait(codec.decode(value, HostPresence))

    key = subjects.presence_key(host.PRESENCE_KIND, "h1")
    watch = await Bucket(bus, subjects.PRESENCE_BUCKET).watch(on_entry, key)
    await hosted.order(START)
    presence = await asyncio.wait_for(told.get(), 5)
    while not presence.engines:
        presence = await asyncio.wait_for(told.get(), 5)
    assert presence == HostPresence(host="h1", engines=("e1",))
    await watch.stop()
