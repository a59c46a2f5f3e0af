"""How many threads to decode with when nobody says: one per physical core, as llama-server."""

import os
from pathlib import Path

_CPUS = Path("/sys/devices/system/cpu")
_FEW_CPUS = 4


def n_physical_cores() -> int:
    """Physical cores of this machine; where it does not say, all of few logical ones or half of many."""
    siblings = {path.read_text().strip() for path in _CPUS.glob("cpu*/topology/thread_siblings")}
    if siblings:
        return len(siblings)
    n_cpus = os.cpu_count() or 1
    return n_cpus if n_cpus <= _FEW_CPUS else n_cpus // 2
