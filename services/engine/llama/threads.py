"""How many threads to decode with when nobody says: one per physical core, as llama-server; and who gets them."""

import os
from pathlib import Path

from services.engine.caching import Caching

_CPUS = Path("/sys/devices/system/cpu")
_FEW_CPUS = 4


def n_physical_cores() -> int:
    """Physical cores of this machine; where it does not say, all of few logical ones or half of many."""
    siblings = {path.read_text().strip() for path in _CPUS.glob("cpu*/topology/thread_siblings")}
    if siblings:
        return len(siblings)
    n_cpus = os.cpu_count() or 1
    return n_cpus if n_cpus <= _FEW_CPUS else n_cpus // 2


def n_side_threads(caching: Caching, n_threads: int, *, has_gpu: bool) -> int:
    """How many of a context's threads long prompts get for themselves while others generate; 0: none.

    By itself half of them: then whoever generates has half of the speed. A prompt budget that somebody
    chose is meant for one context, and a GPU computes one thing after the other anyway. One is left.
    """
    if caching.prefill_threads >= 0:
        return min(caching.prefill_threads, n_threads - 1)
    return 0 if has_gpu or caching.prefill_budget > 0 else n_threads // 2
