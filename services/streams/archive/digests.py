"""What digests cover: the row of a generation, the entries of its log, the chain of the audit. Pure.

A row's digest covers all its columns but those in NOT_COVERED, so it is the same whoever archives the
log and whenever. The events' digest covers every entry's sequence and bytes. Each link of the chain
covers the one before it, so that a link cannot be changed, dropped or moved without all later ones.

    generation   a generation was archived; digest: its row's, which holds the events' one
    erasure      its content was removed on somebody's order; digest: its row's as it is since then
                 (`tombstone_digest`); what it was before is in its link of the first kind
    retention    everything up to an old link was removed; generation_id: `<day>/<position>` of that link,
                 which stays as the chain's first one; digest: that link's chain_digest
"""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

GENERATION, ERASURE, RETENTION = "generation", "erasure", "retention"
CHAIN_START = "0" * 64
"""What the very first link continues."""
NOT_COVERED = frozenset({"digest", "archived_at_ms", "erased_at_ms"})


class Link(NamedTuple):
    """One link of the chain; see the table audit_chain."""

    day: str
    position: int
    kind: str
    generation_id: str
    digest: str
    chain_digest: str


def day_of(at_ms: int) -> str:
    """The UTC day of a time in Unix milliseconds, as 2026-11-30."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d")


def plain(value: object) -> object:
    """`value` as every database's JSON holds it: no tuples, no infinities, no NUL characters."""
    if isinstance(value, Mapping):
        return {plain_text(str(key)): plain(each) for key, each in value.items()}
    if isinstance(value, str):
        return plain_text(value)
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return [plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def plain_text(text: str) -> str:
    """PostgreSQL's text has no NUL characters."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")


def canonical(value: object) -> bytes:
    """The one JSON form of a value: sorted keys, no blanks, UTF-8."""
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass")


def digest_of(value: object) -> str:
    """sha256 of the canonical form."""
    return hashlib.sha256(canonical(value)).hexdigest()


def row_digest(columns: Mapping[str, object]) -> str:
    """The digest of a generation's row, given by the names of its columns."""
    return digest_of({name: each for name, each in columns.items() if name not in NOT_COVERED})


def tombstone_digest(columns: Mapping[str, object]) -> str:
    """The digest of the row that is left of an erased generation; it covers when that was, too."""
    covered = {**columns, "digest": "", "archived_at_ms": 0}
    return digest_of(covered)


def events_digest(entries: Iterable[tuple[int, bytes]]) -> str:
    """The digest of a log: of each entry its sequence and length, 8 bytes each, and its bytes."""
    hasher = hashlib.sha256()
    for seq, data in entries:
        hasher.update(seq.to_bytes(8, "big") + len(data).to_bytes(8, "big") + data)
    return hasher.hexdigest()


def chain_digest(previous: str, kind: str, generation_id: str, digest: str) -> str:
    """The digest of the link that follows one with the chain digest `previous`."""
    text = "\n".join((previous, kind, generation_id, digest))
    return hashlib.sha256(text.encode()).hexdigest()


def next_link(last: Link | None, today: str, kind: str, generation_id: str, digest: str) -> Link:
    """The link after `last` (None: it is the first one of all). A clock that lags behind does not
    reopen a day that is over."""
    day = today if last is None else max(last.day, today)
    position = 0 if last is None or last.day != day else last.position + 1
    previous = CHAIN_START if last is None else last.chain_digest
    chained = chain_digest(previous, kind, generation_id, digest)
    return Link(day, position, kind, generation_id, digest, chained)


def is_next(last: Link | None, link: Link) -> bool:
    """Whether `link` is what follows `last`: its place and its digest. What it says of a generation
    is not looked at."""
    return next_link(last, link.day, link.kind, link.generation_id, link.digest) == link


def anchor_name(link: Link) -> str:
    """How a retention link names the link up to which all was removed."""
    return f"{link.day}/{link.position}"
