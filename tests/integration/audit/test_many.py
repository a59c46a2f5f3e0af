"""Ten thousand archived generations are listed, filtered and verified in the times that docs/audit.md
states. On a real SQLite."""

import asyncio
import resource
import time

from services.streams.archive.store import ArchiveStore
from tests.support import many_archived

MORE_KIB = 64 * 1024
STALL_S = 0.5
"""What a loaded machine takes from a process that does nothing, too. Tokens pass the same event loop."""


async def longest_stall(until: asyncio.Event) -> float:
    """Seconds that the event loop was busy at a stretch."""
    longest = 0.0
    while not until.is_set():
        begun_at = time.perf_counter()
        await asyncio.sleep(0)
        longest = max(longest, time.perf_counter() - begun_at)
        await asyncio.sleep(0.001)
    return longest


async def test_ten_thousand(archive: ArchiveStore) -> None:
    await many_archived.fill(archive)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    is_over = asyncio.Event()
    watching = asyncio.create_task(longest_stall(is_over))
    took = await many_archived.look(archive)
    is_over.set()
    stall_s = await watching
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print({name: f"{seconds:.3f} s" for name, seconds in took.items()}, f"{after - before} KiB")
    print(f"longest stall {stall_s:.3f} s")
    assert stall_s < STALL_S, "whoever is served meanwhile does not wait for it"
    assert after - before < MORE_KIB, "memory does not grow with what is verified"
