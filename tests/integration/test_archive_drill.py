"""Archivers of a running platform are killed again and again; every answer is archived once and reads as before."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from services.bus.errors import BusUnavailable
from services.bus.stored_logs import stored_logs
from tests.support.drill import Drill, drill, simulated_fleet, until_true
from tests.support.fleet import Fleet
from tests.support.readers import Answer

N_ROUNDS, N_AT_ONCE = 4, 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("archive")


@pytest.fixture(scope="module")
def fleet(folder: Path) -> Iterator[Fleet]:
    windows = {
        "LLAMATAPE_HOT_WINDOW_S": "2",
        "LLAMATAPE_IDEMPOTENCY_WINDOW_S": "1",
        "LLAMATAPE_ARCHIVE_SWEEP_S": "0.3",
    }
    with simulated_fleet(folder, **windows) as running:
        running.start("s1")
        yield running


@pytest.fixture
async def alone(fleet: Fleet) -> AsyncIterator[Drill]:
    async with drill(fleet, "e0") as made:
        yield made


async def test_killed_archivers_lose_and_double_nothing(alone: Drill, folder: Path) -> None:
    answers: list[Answer] = []
    for _ in range(N_ROUNDS):
        asking = [alone.ask(alone.reader(), n_predict=40) for _ in range(N_AT_ONCE)]
        answers.append(await asking[0])
        for name in ("s0", "s1"):
            await asyncio.to_thread(alone.fleet[name].kill)
            alone.fleet[name].start()
        answers += await asyncio.gather(*asking[1:])
    await until_true(lambda: is_cold(alone), 60)
    ids = sorted(answer.headers["x-generation-id"] for answer in answers)
    with closing(sqlite3.connect(folder / "registry.db")) as database:
        rows = database.execute("SELECT generation_id FROM archived_generations").fetchall()
        links = database.execute("SELECT generation_id FROM audit_chain").fetchall()
    assert sorted(row[0] for row in rows) == ids
    assert sorted(link[0] for link in links) == ids
    for answer in answers:
        for name in ("g0", "s1"):
            query = {"conv_id": answer.conversation}
            replayed = await alone.http.get(alone.url(name, "/v1/stream"), params=query)
            assert replayed.content == answer.body


async def is_cold(a_drill: Drill) -> bool:
    """Whether the broker holds no log any more."""
    try:
        return not await stored_logs(a_drill.bus)
    except BusUnavailable:
        return False
