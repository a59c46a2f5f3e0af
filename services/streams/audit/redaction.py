"""What is left of the facts of an erased generation: figures, times and names of ours. Pure.

Hashes go, too: one of a short text can be guessed. What stays is covered by the tombstone's link.
"""

from services.streams.archive.digests import tombstone_digest
from services.streams.audit.verification import Columns

SAID_BY_CLIENTS: dict[str, object] = {
    "conversation": None,
    "params": {},
    "request_hash": "",
    "prompt_hash": "",
    "output_hash": "",
    "events_digest": "",
}
"""The columns that go, and what stands there afterwards."""


def redacted(columns: Columns, erased_at_ms: int) -> dict[str, object]:
    """The row of an erased generation, its digest included."""
    left = {**columns, **SAID_BY_CLIENTS, "erased_at_ms": erased_at_ms}
    return {**left, "digest": tombstone_digest(left)}
