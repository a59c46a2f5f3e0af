"""Ten thousand archived generations are listed, filtered and verified in the times that docs/audit.md
states. On a real SQLite."""

import resource

from services.streams.archive.store import ArchiveStore
from tests.support import many_archived

MORE_KIB = 64 * 1024


async def test_ten_thousand(archive: ArchiveStore) -> None:
    await many_archived.fill(archive)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    took = await many_archived.look(archive)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print({name: f"{seconds:.3f} s" for name, seconds in took.items()}, f"{after - before} KiB")
    assert after - before < MORE_KIB, "memory does not grow with what is verified"
