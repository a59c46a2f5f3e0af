"""API keys through real processes: made and revoked by command, held to their limits by two gateways,
one of which is killed."""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.drill import simulated_fleet
from tests.support.fleet import ROOT, Fleet

SECONDS = 10.0
POLL_S = 0.02
COMPLETION = {"prompt": "x", "n_predict": 5}
LONG = {"prompt": "x", "n_predict": 200, "ignore_eos": True, "stream": True}


class Site:
    """A fleet whose database the command line shares."""

    def __init__(self, fleet: Fleet, folder: Path) -> None:
        self.fleet, self._folder = fleet, folder
        self.http = httpx.AsyncClient(timeout=30)

    def keys(self, *words: str) -> list[dict[str, Any]]:
        """What `llamatape keys … --json` says."""
        url = f"sqlite+aiosqlite:///{self._folder}/registry.db"
        line = [sys.executable, "-P", "-m", "services.cli", "keys", *words]
        env = os.environ | {"PYTHONPATH": str(ROOT), "LLAMATAPE_DATABASE_URL": url}
        done = subprocess.run([*line, "--json"], env=env, check=True, capture_output=True)
        return [json.loads(text) for text in done.stdout.splitlines()]

    async def create(self, *words: str) -> str:
        """A new key that all services know."""
        secret: str = self.keys("create", "test", *words)[0]["key"]
        for name in ("g0", "g1", "s0"):
            await self.status_when(name, "", 401)
            await self.status_when(name, secret, 200)
        return secret

    async def ask(self, name: str, secret: str, body: dict[str, Any] | None = None) -> int:
        url = f"{self.fleet[name].url}/completion"
        answer = await self.http.post(url, json=body or COMPLETION, headers=bearer(secret))
        return answer.status_code

    async def status_when(self, name: str, secret: str, status: int) -> float:
        """Seconds until that service gives that status to the key."""
        is_streams = name.startswith("s")
        path = "/v1/streams/lookup" if is_streams else "/v1/models"
        url, began = self.fleet[name].url + path, time.monotonic()
        async with asyncio.timeout(SECONDS):
            while True:
                body = {"json": {"conversation_ids": []}} if is_streams else {}
                method = "POST" if is_streams else "GET"
                answer = await self.http.request(method, url, headers=bearer(secret), **body)
                if answer.status_code == status:
                    return time.monotonic() - began
                await asyncio.sleep(POLL_S)


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"} if secret else {}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Fleet, Path]]:
    folder = tmp_path_factory.mktemp("keys")
    with simulated_fleet(folder) as fleet:
        fleet.ensure("e0")
        yield fleet, folder


@pytest.fixture
async def site(running: tuple[Fleet, Path]) -> AsyncIterator[Site]:
    fleet, folder = running
    for service in fleet.services.values():
        if not service.is_running:
            service.start()
    fleet.wait_ready()
    made = Site(fleet, folder)
    yield made
    await made.http.aclose()


async def test_the_first_key_closes_every_door_and_its_end_opens_none(site: Site) -> None:
    assert await site.ask("g0", "") == 200
    secret = await site.create("--expires", "1h")
    for name in ("g0", "g1"):
        assert await site.ask(name, secret) == 200
        assert await site.ask(name, "") == 401
    (listed,) = site.keys("list")
    assert listed["expires_at_ms"]
    assert secret not in json.dumps(listed)
    site.keys("revoke", "test")
    for name in ("g0", "g1", "s0"):
        assert await site.status_when(name, secret, 401) < 5
        await site.status_when(name, "", 401)


async def test_a_key_expires_while_everything_runs(site: Site) -> None:
    secret = await site.create("--expires", "4s")
    for name in ("g0", "g1", "s0"):
        await site.status_when(name, secret, 401)


async def test_a_gateway_that_starts_without_the_models_service_knows_the_keys(site: Site) -> None:
    secret = await site.create()
    site.fleet["m0"].stop()
    site.fleet["g1"].stop()
    site.fleet["g1"].start()
    site.fleet.wait_for(site.fleet["g1"])
    assert await site.ask("g1", secret) == 200
    assert await site.ask("g1", "") == 401


async def test_two_gateways_share_a_limit(site: Site) -> None:
    secret = await site.create("--requests-per-minute", "5")
    asked = [site.ask(f"g{n % 2}", secret) for n in range(12)]
    assert sorted(await asyncio.gather(*asked)) == [200] * 5 + [429] * 7


async def test_a_killed_gateway_keeps_no_place(site: Site) -> None:
    """Its answer goes on until its end, as nobody is left to cancel it, and counts until then."""
    secret = await site.create("--concurrent", "1")
    url, began = f"{site.fleet['g1'].url}/completion", asyncio.Event()

    async def read() -> None:
        async with site.http.stream("POST", url, json=LONG, headers=bearer(secret)) as answer:
            async for _ in answer.aiter_bytes():
                began.set()

    reading = asyncio.create_task(read())
    await began.wait()
    assert await site.ask("g0", secret) == 429
    site.fleet["g1"].kill()
    with pytest.raises(httpx.TransportError):
        await reading
    async with asyncio.timeout(SECONDS):
        status = await site.ask("g0", secret)
        while status == 429:
            await asyncio.sleep(POLL_S)
            status = await site.ask("g0", secret)
    assert status == 200
