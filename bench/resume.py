"""First replayed byte of a 1,000-token stream with 10,000 other logs stored (budget: 20 ms).

Asked of a `llamatape streams` that was started afterwards, so nothing is in its memory; then again.
"""

import argparse
import asyncio
import re
import time
import urllib.request

from bench import generator, report
from bench.processes import Server, platform, streams
from schemas import ids, subjects
from schemas.events import Finished, Prompt, Requested, Tokens, Usage, encode_entry
from schemas.params import Params
from services.bus.ack_pipe import AckPipe
from services.bus.config import BusSettings
from services.bus.connection import connect

N_STREAMS, N_TOKENS, RATE = 20, 1000, 100
CONVERSATION = "bench-resume-{n}"
BUDGET_MS = 20
IN_FLIGHT = 100


def run(options: argparse.Namespace) -> None:
    n_streams, n_tokens = options.streams or N_STREAMS, options.tokens or N_TOKENS
    flags = ["--simulate", f"tokens_per_s={RATE}", "-np", str(n_streams)]
    flags += ["-c", str(2048 * n_streams)]
    with report.measuring("resume") as figures, platform(*flags) as server:
        job = generator.completions(server.url, n_streams, n_tokens, conversation=CONVERSATION)
        generator.run(job)
        broker = _broker(server)
        asyncio.run(_fill(broker, options.logs))
        with streams(broker.url, broker.token) as reader:
            _first_byte_ms(reader.url, 0)
            cold = [_first_byte_ms(reader.url, n) for n in range(1, n_streams)]
            warm = [_first_byte_ms(reader.url, n) for n in range(1, n_streams)]
        rows = [
            [name, report.percentile(found, 50), report.percentile(found, 99), max(found)]
            for name, found in (("from the log", cold), ("in memory", warm))
        ]
        head = [f"first byte, {options.logs:,} other logs", "p50 ms", "p99 ms", "max ms"]
        report.table(head, rows)
        figures |= {"logs": options.logs, "budget_ms": BUDGET_MS, "rows": rows}


def _first_byte_ms(url: str, number: int) -> float:
    conversation = CONVERSATION.replace("{n}", str(number))
    begun_at = time.perf_counter()
    with urllib.request.urlopen(f"{url}/v1/stream?conv_id={conversation}&from=0") as answer:
        answer.read(1)
        elapsed_s = time.perf_counter() - begun_at
        answer.read()
    return elapsed_s * 1000


def _broker(server: Server) -> BusSettings:
    """How to reach the platform's own broker, from its configuration."""
    text = (server.folder / "data" / "broker" / "nats.conf").read_text()
    address, token = re.search(r'listen: "(.+?)"', text), re.search(r'token: "(.+?)"', text)
    assert address
    assert token
    return BusSettings(url=f"nats://{address[1]}", token=token[1])


async def _fill(settings: BusSettings, n_logs: int) -> None:
    """Store that many short logs."""
    bus = await connect(settings, name="bench")
    pipe = bus.part(AckPipe)
    for first in range(0, n_logs, IN_FLIGHT):
        n = min(IN_FLIGHT, n_logs - first)
        await asyncio.gather(*(_store(pipe) for _ in range(n)))
    await bus.close()


async def _store(pipe: AckPipe) -> None:
    generation_id = ids.new_generation_id()
    requested = Requested(
        generation_id=generation_id,
        dialect="native.completion",
        request=b"{}",
        prompts=(Prompt(ids=(1, 2, 3), text="abc"),),
        params=Params(),
        model_key="bench",
        model="bench",
        created_at_ms=1,
        deadline_at_ms=2,
    )
    tokens = Tokens(index=0, ids=(5, 6), texts=(" five", " six"))
    finished = Finished(usage=Usage(n_prompt=3, n_predicted=2))
    for entry in ((requested,), (tokens,), (finished,)):
        await pipe.publish(subjects.generation(generation_id), encode_entry(entry), {})
