"""Making a key: 256 random bits, of which the database and the bus only ever see the SHA-256.

A slow hash would protect what can be guessed; nobody guesses 256 bits.
"""

import hashlib
import secrets
from typing import NamedTuple

import msgspec

from schemas.ids import new_short_id
from schemas.keys import CONTENTS, SCOPES, KeyLimits, KeyRecord
from services.models.errors import BadKey

KEY_BYTES = 32
KEY_PREFIX = "sk-"
ID_PREFIX = "key_"
MAX_PER_MINUTE = 1_000_000_000
MAX_CONCURRENT = 1000
"""What counts as running is written with every request of such a key."""
MAX_NAME_CHARS = 200


class NewKey(NamedTuple):
    """secret: the key itself, to be shown once. record: what is kept of it."""

    secret: str
    record: KeyRecord


def mint(wanted: KeyRecord, now_ms: int) -> NewKey:
    """A key with the name, scopes, limits and so on of `wanted`; its id, digest and time of creation
    are new. Raises BadKey."""
    _check(wanted, now_ms)
    secret = KEY_PREFIX + secrets.token_urlsafe(KEY_BYTES)
    record = msgspec.structs.replace(
        wanted,
        id=new_short_id(ID_PREFIX),
        digest=hashlib.sha256(secret.encode()).hexdigest(),
        created_at_ms=now_ms,
    )
    return NewKey(secret, record)


def _check(wanted: KeyRecord, now_ms: int) -> None:
    if not wanted.name.isprintable() or not 0 < len(wanted.name) <= MAX_NAME_CHARS:
        raise BadKey(f"a key needs a name of 1 to {MAX_NAME_CHARS} printable characters")
    if not wanted.scopes or not set(wanted.scopes) <= set(SCOPES):
        raise BadKey(f"scopes are {', '.join(SCOPES)}; a key needs one at least")
    if wanted.content not in ("", *CONTENTS):
        raise BadKey(f"content is one of {', '.join(CONTENTS)}")
    if wanted.expires_at_ms and wanted.expires_at_ms <= now_ms:
        raise BadKey("the key would have expired already")
    _check_limits(wanted.limits)


def _check_limits(limits: KeyLimits) -> None:
    for name in ("requests_per_minute", "tokens_per_minute"):
        if not 0 <= getattr(limits, name) <= MAX_PER_MINUTE:
            raise BadKey(f"{name} is 0, for no limit, to {MAX_PER_MINUTE}")
    if not 0 <= limits.concurrent <= MAX_CONCURRENT:
        raise BadKey(f"concurrent is 0, for no limit, to {MAX_CONCURRENT}")
