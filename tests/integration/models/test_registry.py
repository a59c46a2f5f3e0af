"""The registry over a real SQLite file."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from schemas.lifecycle import FAILED, LOADED, LOADING, UNLOADED
from services.models.catalog import ModelSpec
from services.models.downloads.receipts import Receipt
from services.models.files import FileFacts, FileIdentity
from services.models.lifecycle import Reason, Verdict
from services.models.registry import Registry, open_registry

SPEC = ModelSpec(key="key", name="tiny", path="/m.gguf", aliases=("a", "b"), tags=("t",))
FILE = FileIdentity(path="/m.gguf", size_bytes=10, mtime_ns=1)
FACTS = FileFacts(digest="d" * 64, header={"general.architecture": "llama"})
LOADING_NOW = Verdict(status=LOADING, reason=Reason.ORDERED)
LOADED_NOW = Verdict(status=LOADED, reason=Reason.ENGINE_LOADED, progress=1.0, engine="e0")


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite+aiosqlite:///{tmp_path / 'llamatape.db'}"


@pytest.fixture
async def registry(url: str) -> AsyncIterator[Registry]:
    opened = await open_registry(url)
    await opened.register(SPEC, FILE, 1000)
    yield opened
    await opened.close()


async def history(registry: Registry) -> list[tuple[str, str, str]]:
    changes = await registry.history("key")
    return [(change.from_status, change.to_status, change.reason) for change in changes]


async def test_a_model_keeps_the_time_it_was_first_seen(registry: Registry) -> None:
    again = await registry.register(replace(SPEC, aliases=()), FILE, 2000)
    assert again.created_at_ms == 1000


async def test_a_digest_is_computed_once_for_a_file(registry: Registry) -> None:
    assert await registry.learn("key", FILE, FACTS)
    assert (await registry.register(SPEC, FILE, 2000)).digest == FACTS.digest


@pytest.mark.parametrize(
    "other",
    [
        replace(FILE, path="/n.gguf"),
        replace(FILE, size_bytes=11),
        replace(FILE, mtime_ns=2),
    ],
    ids=["path", "size", "mtime"],
)
async def test_another_file_needs_another_digest(registry: Registry, other: FileIdentity) -> None:
    await registry.learn("key", FILE, FACTS)
    assert (await registry.register(SPEC, other, 2000)).digest == ""
    assert not await registry.learn("key", FILE, FACTS), "it speaks of a file that is gone"


async def test_state_and_history_move_together(registry: Registry) -> None:
    assert await registry.status("key") == UNLOADED
    assert await registry.record("key", LOADING_NOW, 1)
    assert await registry.record("key", LOADED_NOW, 2)
    assert await registry.status("key") == LOADED
    first, second = await registry.history("key")
    assert (first.from_status, first.to_status, first.at_ms) == (UNLOADED, LOADING, 1)
    assert (second.from_status, second.to_status, second.engine) == (LOADING, LOADED, "e0")


async def test_the_same_status_again_is_no_transition(registry: Registry) -> None:
    await registry.record("key", LOADING_NOW, 1)
    assert not await registry.record("key", replace(LOADING_NOW, progress=0.5), 2)
    assert await history(registry) == [(UNLOADED, LOADING, "ordered")]


async def test_an_error_stands_in_the_history(registry: Registry) -> None:
    failed = Verdict(status=FAILED, reason=Reason.ENGINE_FAILED, error="no memory")
    await registry.record("key", failed, 1)
    assert [change.error for change in await registry.history("key")] == ["no memory"]


async def test_two_writers_make_one_chain(url: str, registry: Registry) -> None:
    other = await open_registry(url)
    verdicts = (LOADING_NOW, LOADED_NOW) * 10
    await asyncio.gather(
        *(one.record("key", verdict, 1) for verdict in verdicts for one in (registry, other))
    )
    await other.close()
    chain = [(UNLOADED, UNLOADED, ""), *await history(registry)]
    assert all(a[1] == b[0] != b[1] for a, b in itertools.pairwise(chain))


async def test_the_history_survives_a_restart(url: str, registry: Registry) -> None:
    await registry.record("key", LOADING_NOW, 1)
    again = await open_registry(url)
    assert await history(again) == [(UNLOADED, LOADING, "ordered")]
    await again.close()


RECEIPT = Receipt(
    id="1",
    repo="user/model",
    revision="c" * 40,
    file="a.gguf",
    url="http://hub/a.gguf",
    path="/a.gguf",
    size_bytes=2**40,
    etag='"e"',
    digest="d" * 64,
    started_at_ms=1,
    ended_at_ms=2,
    outcome="downloaded",
)


async def test_a_receipt_is_one_row_however_often_it_is_told(registry: Registry) -> None:
    later = replace(RECEIPT, id="2", ended_at_ms=3, outcome="failed", error="no")
    await registry.note_downloads([later, RECEIPT])
    await registry.note_downloads([RECEIPT])
    assert await registry.downloads() == [RECEIPT, later]
