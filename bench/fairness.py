"""One caller floods: how long do others wait? Two slots of a simulated decoder, keys for everybody."""

import argparse
import asyncio
import contextlib
import json
import time
from collections.abc import AsyncGenerator, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from bench import report
from bench.processes import Server, platform

N_FLOOD, N_ASKED, PERIOD_S = 300, 10, 2.0
MAX_WAIT_S = 120
N_SLOTS, RATE, N_TOKENS = 2, 100, 40
KEYS = ("flood", "rare", "batch")
FLAGS = (
    "--simulate",
    f"tokens_per_s={RATE}",
    "-np",
    str(N_SLOTS),
    "-c",
    "8192",
    "--max-queue",
    "0",
)


class Case(NamedTuple):
    """name: for people. flood, batch: requests of one caller at once. is_keyed: callers are known.
    n_asked: where it takes too long to ask often."""

    name: str
    flood: int = 0
    batch: int = 0
    is_keyed: bool = True
    n_asked: int = N_ASKED


def run(options: argparse.Namespace) -> None:
    n_flood = options.streams or N_FLOOD
    cases = (
        Case("alone"),
        Case(f"beside {n_flood} of another caller", flood=n_flood),
        Case(f"beside {n_flood} batch requests", batch=n_flood),
        Case("beside both", flood=n_flood, batch=n_flood),
        Case(f"beside {n_flood}, nobody has a key", flood=n_flood, is_keyed=False, n_asked=2),
    )
    with report.measuring("fairness") as figures:
        rows = [_measure(case, options.rounds or case.n_asked) for case in cases]
        head = ["one request every 2 s", "first token p50 ms", "worst ms", "answered"]
        report.table([*head, "flood ended/s", "batch ended/s"], rows)
        figures |= {"flood": n_flood, "slots": N_SLOTS, "rows": rows}


def _measure(case: Case, n_asked: int) -> list[object]:
    keys = ("--api-key", ",".join(KEYS)) if case.is_keyed else ()
    with platform(*FLAGS, *keys) as server:
        return asyncio.run(_ask_beside(case, server, n_asked))


async def _ask_beside(case: Case, server: Server, n_asked: int) -> list[object]:
    await _ask(server.url, "rare", 0)
    floods = [_Flood("flood", case.flood), _Flood("batch", case.batch, priority="batch")]
    begun_at = time.perf_counter()
    async with contextlib.AsyncExitStack() as stack:
        for flood in floods:
            await stack.enter_async_context(flood.running(server.url))
        await asyncio.sleep(PERIOD_S)
        waited = [await _asked(server.url, n) for n in range(n_asked)]
        elapsed_s = time.perf_counter() - begun_at
    answered = [seconds * 1000 for seconds in waited if seconds is not None]
    ended = [flood.n_ended / elapsed_s for flood in floods]
    return [
        case.name,
        report.percentile(answered, 50),
        max(answered, default=0.0),
        f"{len(answered)}/{n_asked}",
        *(f"{rate:.2f}" for rate in ended),
    ]


async def _asked(url: str, number: int) -> float | None:
    """How long the first token took; None where the answer is longer away than the bench lasts."""
    sent_at = time.perf_counter()
    try:
        async with asyncio.timeout(MAX_WAIT_S):
            return await _ask(url, "rare", number)
    except TimeoutError:
        return None
    finally:
        await asyncio.sleep(max(0.0, PERIOD_S - (time.perf_counter() - sent_at)))


class _Flood:
    """n requests of one caller that are always open: whatever ends is asked anew."""

    def __init__(self, key: str, n: int, **fields: object) -> None:
        self._key, self._n, self._fields = key, n, fields
        self.n_ended = 0

    @contextlib.asynccontextmanager
    async def running(self, url: str) -> AsyncGenerator[None]:
        tasks = [asyncio.create_task(self._keep_asking(url, n)) for n in range(self._n)]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep_asking(self, url: str, number: int) -> None:
        while True:
            await _ask(url, self._key, number, **self._fields)
            self.n_ended += 1


async def _ask(url: str, key: str, number: int, **fields: object) -> float:
    """One streamed completion, read to its end; seconds until its first token."""
    place = urlsplit(url)
    sent_at = time.perf_counter()
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    try:
        writer.write(_request(key, number, fields))
        while b"data: " not in await reader.readline():
            if reader.at_eof():
                raise RuntimeError("refused")
        first_at = time.perf_counter()
        await reader.read()
        return first_at - sent_at
    finally:
        writer.close()


def _request(key: str, number: int, fields: dict[str, Any]) -> bytes:
    body = {"prompt": f"{key} {number}: once upon", "n_predict": N_TOKENS, "ignore_eos": True}
    data = json.dumps(body | {"stream": True, "cache_prompt": False} | fields).encode()
    lines: Sequence[str] = (
        "POST /completion HTTP/1.1",
        "Host: bench",
        f"Authorization: Bearer {key}",
        "Content-Type: application/json",
        "Connection: close",
        f"Content-Length: {len(data)}",
    )
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + data
