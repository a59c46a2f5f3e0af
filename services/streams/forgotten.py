"""Generations that their owners deleted: the log stays for the audit, readers find it no more.

The fact stands in a key and not in the log, since a log that is closed takes no more events.
"""

import contextlib

import orjson

from schemas import subjects
from schemas.events import Requested
from services.bus.errors import KeyConflict
from services.bus.keys import Keys

MARK = b"1"
RESPONSES = "openai.responses"


class Forgotten:
    """Marks of deleted generations. Methods raise BusUnavailable."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys

    async def mark(self, generation_id: str) -> None:
        """Idempotent."""
        with contextlib.suppress(KeyConflict):
            await self._keys.create(subjects.forgotten_key(generation_id), MARK)

    async def has(self, generation_id: str) -> bool:
        return await self._keys.get(subjects.forgotten_key(generation_id)) is not None


def may_show(requested: Requested, caller: str) -> bool:
    """Whether that caller may look at the log: it is its own, and it did not say `store: false`."""
    if requested.caller != caller:
        return False
    return (
        requested.dialect != RESPONSES or orjson.loads(requested.request).get("store") is not False
    )
