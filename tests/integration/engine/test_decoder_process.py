"""The front's hold on a real decoder process: what is stopped or gone is replaced."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import uvloop

from services.engine.config import EngineSettings
from services.engine.decoder_process import DecoderEvents, DecoderProcess
from services.engine.protocol import Cancel, Output, Ready
from services.engine.watchdog import process_state
from tests.support.processes import wait_gone

MODEL = Path(__file__).resolve().parents[2] / "models" / "stories-tiny.gguf"
SETTINGS = EngineSettings(
    engine="e",
    host="h",
    model_key="k",
    model_name="m",
    model_path=str(MODEL),
    n_ctx=512,
    n_threads=1,
    is_warmup=False,
)


class Kept:
    """A decoder and what its front would hear of it."""

    def __init__(self) -> None:
        self.ready: asyncio.Queue[Ready] = asyncio.Queue()
        self.gone: asyncio.Queue[None] = asyncio.Queue()
        self.process = DecoderProcess(
            SETTINGS,
            DecoderEvents(
                on_outputs=self._on_outputs,
                on_ready=self.ready.put_nowait,
                on_gone=lambda: self.gone.put_nowait(None),
                on_progress=lambda _: None,
            ),
        )

    def _on_outputs(self, outputs: tuple[Output, ...]) -> None:
        raise AssertionError(outputs)

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid


@contextlib.asynccontextmanager
async def kept() -> AsyncGenerator[Kept]:
    decoder = Kept()
    running = asyncio.create_task(decoder.process.run())
    try:
        await asyncio.wait_for(decoder.ready.get(), 60)
        yield decoder
    finally:
        await decoder.process.stop()
        await running


async def test_a_killed_decoder_is_replaced() -> None:
    async with kept() as decoder:
        os.kill(decoder.pid, signal.SIGKILL)
        await asyncio.wait_for(decoder.gone.get(), 10)
        await asyncio.wait_for(decoder.ready.get(), 60)


async def test_a_stopped_decoder_is_killed_and_replaced() -> None:
    async with kept() as decoder:
        pid = decoder.pid
        os.kill(pid, signal.SIGSTOP)
        async with asyncio.timeout(20):
            while decoder.gone.empty():
                decoder.process.check(is_busy=False)
                await asyncio.sleep(0.1)
        await asyncio.wait_for(decoder.ready.get(), 60)
        assert decoder.pid != pid


async def test_a_stopped_decoder_does_not_outlive_its_front() -> None:
    async with kept() as decoder:
        pid = decoder.pid
        os.kill(pid, signal.SIGSTOP)
    assert wait_gone(pid, 0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_to_the_group_is_the_fronts_business(number: signal.Signals) -> None:
    """Ctrl-C reaches the decoder too, since it is in its front's group: it stays."""
    async with kept() as decoder:
        assert os.getpgid(decoder.pid) == os.getpgid(0)
        os.kill(decoder.pid, number)
        decoder.process.check(is_busy=True)
        assert not await asyncio.to_thread(wait_gone, decoder.pid, 0.5)
        assert process_state(decoder.pid) is not None


def test_what_is_sent_to_one_that_has_just_died_is_lost_without_a_word() -> None:
    """On uvloop, as engines run: its transports raise once they are closed, which is before `on_gone`."""

    async def send_until_gone() -> None:
        async with kept() as decoder, asyncio.timeout(10):
            os.kill(decoder.pid, signal.SIGKILL)
            while decoder.gone.empty():
                decoder.process.send(Cancel(generation_id="x"))
                decoder.process.pause()
                decoder.process.resume()
                await asyncio.sleep(0)

    uvloop.run(send_until_gone())
