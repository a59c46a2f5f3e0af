"""Everything is killed, stopped and restarted under load; at the end nothing is lost or doubled.

Short here; `make faults` takes ten minutes. Reproduce one with FAULTS_SEED. FAULTS_S: seconds of faults.
"""

import asyncio
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from schemas import subjects
from services.bus.connection import connect
from tests.faults import audit
from tests.faults.crowd import MAX_TOKENS, PROMPTS, Crowd
from tests.faults.weather import Weather
from tests.support.drill import Drill
from tests.support.fleet import TINY, Fleet
from tests.support.nats_nodes import nats_nodes

SHORT_S = 18.0
N_CLIENTS = 6
ENGINES = ("e0", "e1")
SIMULATED = {"LLAMATAPE_SIMULATE": "tokens_per_s=80,jitter=0.3"}
COMPUTED = {"LLAMA_ARG_MODEL": str(TINY), "LLAMA_ARG_CTX_SIZE": "2048"}


@pytest.fixture(params=[SIMULATED, COMPUTED], ids=["simulated", "tiny model"])
def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Fleet]:
    variables = {"LLAMA_ARG_N_PARALLEL": "4", "LLAMA_ARG_TIMEOUT": "60"} | request.param
    with nats_nodes(tmp_path / "nats") as nats, Fleet(nats, tmp_path, **variables) as running:
        running.start("m0", "g0", "g1", "s0")
        running.ensure(*ENGINES)
        yield running


async def test_nothing_is_lost_or_doubled(
    fleet: Fleet, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    seed = int(os.environ.get("FAULTS_SEED", "0")) or random.randrange(1, 10**6)
    for_s = float(os.environ.get("FAULTS_S", SHORT_S))
    is_simulated = "simulated" in request.node.name
    say(capsys, f"\nfaults: seed={seed} for_s={for_s:g} {request.node.callspec.id}")
    limits = httpx.Limits(max_keepalive_connections=0)
    async with httpx.AsyncClient(timeout=30, limits=limits) as http:
        expected = await undisturbed(fleet, http) if is_simulated else {}
        weather = Weather(fleet, seed, pause_s=1.2, outage_s=min(2.0, for_s / 10))
        crowd = Crowd(fleet, http, seed)
        asking = asyncio.create_task(crowd.ask(N_CLIENTS))
        await weather.rage(for_s)
        crowd.end()
        await asking
        await finish(fleet, http, crowd, weather, expected, capsys)


async def undisturbed(fleet: Fleet, http: httpx.AsyncClient) -> dict[tuple[str, int], str]:
    """What each prompt and seed must say."""

    async def ask(prompt: str, seed: int) -> str:
        body = {"prompt": prompt, "seed": seed, "n_predict": MAX_TOKENS, "ignore_eos": True}
        response = await http.post(fleet["g0"].url + "/completion", json=body)
        return response.json()["content"]

    keys = [(prompt, seed) for prompt in PROMPTS for seed in (1, 2)]
    return dict(zip(keys, await asyncio.gather(*(ask(*key) for key in keys)), strict=True))


async def finish(
    fleet: Fleet,
    http: httpx.AsyncClient,
    crowd: Crowd,
    weather: Weather,
    expected: dict[tuple[str, int], str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Let all come to rest, then look at everything."""
    began = time.monotonic()
    await asyncio.to_thread(fleet.ensure, *ENGINES)
    bus = await connect(fleet.nats.settings(), name="audit")
    try:
        drill = Drill(fleet, bus, http)
        await drill.no_task_is_left(timeout_s=60)
        await drill.no_slot_is_busy()
        findings = await audit.audit_logs(bus, await drill.generation_ids(), crowd.seen)
        n_texts = audit.check_texts(crowd.seen, expected) if expected else 0
        await audit.audit_broker(bus, fleet.nats, subjects.model_key(model_name(fleet)))
    finally:
        await bus.close()
    p50_s, p99_s = audit.pauses(crowd.seen)
    n_failed = sum(n for end, n in findings.ends.items() if end.startswith("failed"))
    lines = [
        f"faults injected: {weather.counts.total()} {dict(weather.counts)}",
        f"requests: {len(crowd.seen.answers)} accepted, {crowd.seen.n_refused} refused, "
        f"{crowd.seen.n_left} hung up",
        f"logs: {findings.ends.total()} {dict(findings.ends)}, attempts {findings.n_attempts}",
        f"tokens checked: {findings.n_tokens}; texts compared: {n_texts}",
        f"longest pause of an answer: p50 {p50_s:.2f} s, p99 {p99_s:.2f} s",
        f"at rest after {time.monotonic() - began:.1f} s",
    ]
    say(capsys, "\n".join(lines))
    assert weather.counts.total() > 3
    assert findings.n_tokens > 100
    assert n_failed <= 0.05 * findings.ends.total(), findings.ends


def model_name(fleet: Fleet) -> str:
    with httpx.Client(base_url=fleet["g0"].url) as client:
        return client.get("/v1/models").json()["data"][0]["id"]


def say(capsys: pytest.CaptureFixture[str], text: str) -> None:
    with capsys.disabled():
        print(text, flush=True)
