"""10,000 ended generations archived into SQLite: how fast, what each costs and takes, how they are read."""

import argparse
import asyncio
import random
import tempfile
import time
from pathlib import Path

from bench import report
from schemas import ids, subjects
from schemas.events import (
    ChoiceEnd,
    ChoiceStart,
    Claimed,
    Compat,
    Event,
    Finished,
    Prompt,
    Requested,
    Started,
    Timings,
    Tokens,
    Usage,
    encode_entry,
)
from schemas.params import Limits, Output, Params, Sampling
from schemas.rpc import ArchiveDescription, DescribeArchive
from services.bus.ack_pipe import AckPipe
from services.bus.config import BusSettings
from services.bus.connection import Bus, connect
from services.bus.ended import hint
from services.bus.jetstream import api
from services.bus.rpc import ask
from services.bus.stored_logs import purge_log
from services.bus.topology import ensure_topology
from services.cli.broker import start_broker
from services.streams.archive.bootstrap import archiving
from services.streams.archive.config import ArchiveSettings
from services.streams.bootstrap import create_logs
from services.streams.config import StreamsSettings

N_TOKENS = 50
N_READS = 200
IN_FLIGHT = 50
PROMPT = "The sea at night is darker than the sky above it, and louder. " * 4
WORDS = PROMPT.split()


def run(options: argparse.Namespace) -> None:
    n_tokens = options.tokens or N_TOKENS
    with report.measuring("archive") as figures:
        with tempfile.TemporaryDirectory(prefix="llamatape-bench-") as name:
            broker = start_broker(Path(name) / "broker")
            try:
                settings = BusSettings(url=broker.url, token=broker.token)
                row = asyncio.run(_measure(settings, Path(name), options.logs, n_tokens))
            finally:
                broker.stop()
        head = [f"{options.logs:,} generations of {n_tokens} tokens", "value"]
        report.table(head, list(row.items()))
        figures |= {"logs": options.logs, "tokens": n_tokens, **row}


async def _measure(
    settings: BusSettings, folder: Path, n_logs: int, n_tokens: int
) -> dict[str, float]:
    bus = await connect(settings, name="bench")
    await ensure_topology(bus)
    names = await _fill(bus, n_logs, n_tokens)
    hot_bytes = (await api(bus, f"STREAM.INFO.{subjects.GENERATIONS_STREAM}"))["state"]["bytes"]
    path = folder / "archive.db"
    archive = ArchiveSettings(database_url=f"sqlite+aiosqlite:///{path}", sweep_s=3600)
    begun_at, cpu_s = time.perf_counter(), time.process_time()
    async with archiving(bus, archive):
        await _until(bus, n_logs)
        elapsed_s, cpu_s = time.perf_counter() - begun_at, time.process_time() - cpu_s
        size = _size(folder)
        reads = await _read(bus, random.sample(names, min(N_READS, n_logs)))
    await bus.close()
    return {
        "generations/s": n_logs / elapsed_s,
        "ms of CPU each (broker apart)": cpu_s / n_logs * 1000,
        "bytes each in the database": size / n_logs,
        "bytes each on the broker": hot_bytes / n_logs,
        "ms to read one back, p50": report.percentile(reads, 50),
        "ms to read one back, p99": report.percentile(reads, 99),
    }


def _size(folder: Path) -> int:
    """Of the database and what it has written ahead."""
    return sum(each.stat().st_size for each in folder.glob("archive.db*"))


async def _until(bus: Bus, n_logs: int) -> None:
    """Until that many are archived."""
    n_archived = 0
    while n_archived < n_logs:
        await asyncio.sleep(0.1)
        subject = subjects.ARCHIVE_RPC
        try:
            said = await ask(bus, subject, DescribeArchive(), ArchiveDescription, timeout_s=30)
        except Exception:  # the database is being made
            continue
        n_archived = said.n_archived


async def _read(bus: Bus, names: list[str]) -> list[float]:
    """Milliseconds for each to be read of the archive, when it is on the broker no more."""
    logs, found = create_logs(bus, StreamsSettings()), list[float]()
    for name in names:
        await purge_log(bus, name, keep_last=False)
        begun_at = time.perf_counter()
        entries = await logs.read(name)
        found.append((time.perf_counter() - begun_at) * 1000)
        assert entries
    return found


async def _fill(bus: Bus, n_logs: int, n_tokens: int) -> list[str]:
    """Store that many ended logs, with their hints."""
    names = [ids.new_generation_id() for _ in range(n_logs)]
    for first in range(0, n_logs, IN_FLIGHT):
        await asyncio.gather(*(_store(bus, name, n_tokens) for name in names[first:][:IN_FLIGHT]))
    await bus.flush()
    return names


async def _store(bus: Bus, name: str, n_tokens: int) -> None:
    pipe, subject = bus.part(AckPipe), subjects.generation(name)
    for events in _entries(name, n_tokens):
        await pipe.publish(subject, encode_entry(events), {})
    hint(bus, name)


def _entries(name: str, n_tokens: int) -> list[list[Event]]:
    """A log as an engine writes it: an entry for each token."""
    now_ms = time.time_ns() // 1_000_000
    requested = Requested(
        generation_id=name,
        dialect="openai.chat",
        request=b'{"messages":[{"role":"user","content":"'
        + PROMPT.encode()
        + b'"}],"stream":true}',
        prompts=(Prompt(ids=tuple(range(60)), text=PROMPT),),
        params=Params(
            sampling=Sampling(seed=7),
            limits=Limits(n_predict=n_tokens),
            output=Output(stream=True, include_usage=True),
        ),
        model_key="bench",
        model="bench",
        created_at_ms=now_ms,
        deadline_at_ms=now_ms + 60_000,
    )
    compat = Compat(model="m" * 64, n_ctx=4096, build="b1")
    start = ChoiceStart(choice=0, slot=0, seed=7, n_prompt=60, chunks=(60,))
    tokens = [
        Tokens(
            index=index,
            ids=(random.randrange(32_000),),
            texts=(f" {random.choice(WORDS)}",),
            elapsed_us=20_000 * index,
        )
        for index in range(n_tokens)
    ]
    return [
        [requested],
        [Claimed(attempt=1, engine="e0", host="h", build="b1", at_ms=now_ms)],
        [Started(attempt=1, compat=compat, choices=(start,), params=requested.params)],
        *([token] for token in tokens),
        _end(n_tokens, now_ms),
    ]


def _end(n_tokens: int, now_ms: int) -> list[Event]:
    timings = Timings(n_prompt=60, prompt_ms=30.0, n_predicted=n_tokens, predicted_ms=900.0)
    end = ChoiceEnd(choice=0, stop_type="limit", n_predicted=n_tokens, n_prompt=60, timings=timings)
    usage = Usage(n_prompt=60, n_predicted=n_tokens)
    return [Tokens(index=n_tokens, end=end), Finished(usage=usage, at_ms=now_ms)]
