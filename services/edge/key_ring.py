"""The keys that open the doors of this process: those of its flags, and those of the database.

Keys are looked up by digest: who measures how long that takes learns of digests, which are no use to
him. The last step compares in constant time all the same.
"""

import hashlib
import hmac
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from schemas.keys import SCOPES, KeyRecord
from services.edge.access import Access

KEY_ID_CHARS = 12
EVERYTHING = frozenset(SCOPES)


def digest_of(key: str) -> str:
    """The SHA-256 of a key in hex."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def key_id(key: str) -> str:
    """The public name of a flag's key: the first 12 hexadecimal digits of its SHA-256."""
    return digest_of(key)[:KEY_ID_CHARS]


class _Known(NamedTuple):
    """A key of the database, with its scopes in the form that requests are asked in."""

    record: KeyRecord
    scopes: frozenset[str]


class KeyRing:
    """Finds keys. Event-loop thread only.

    flag_keys: always good, without limits. admin_keys: good for everything; that there are some does
    not mean that others need one. is_required: nobody may ask without a key, though none is
    known. now_ms: Unix milliseconds.
    """

    def __init__(
        self,
        flag_keys: Iterable[str] = (),
        *,
        admin_keys: Iterable[str] = (),
        is_required: bool = False,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._flag_digests = tuple(digest_of(key) for key in flag_keys)
        self._admin_digests = tuple(digest_of(key) for key in admin_keys)
        self._known: dict[str, _Known] = {}
        self._is_required = is_required or bool(self._flag_digests)
        self._now_ms = now_ms

    @property
    def is_required(self) -> bool:
        """Whether a key is asked for: from the first one on that was ever known, and for good."""
        return self._is_required

    def learn(self, digest: str, record: KeyRecord | None) -> None:
        """The database's key with that digest is like this now; None: it opens nothing any more."""
        self._is_required = True
        if record is None:
            self._known.pop(digest, None)
        else:
            self._known[digest] = _Known(record, frozenset(record.scopes))

    def find(self, key: str) -> Access | None:
        """What `key` opens; None for one that is wrong, revoked or expired, or none at all where one
        is asked for."""
        if not self._is_required and not (key and self._admin_digests):
            return Access()
        digest = digest_of(key)
        if _is_among(digest, self._admin_digests):
            return Access(caller=digest[:KEY_ID_CHARS], scopes=EVERYTHING)
        if not self._is_required:
            return Access()
        if _is_among(digest, self._flag_digests):
            return Access(caller=digest[:KEY_ID_CHARS])
        return self._find_known(digest)

    def _find_known(self, digest: str) -> Access | None:
        known = self._known.get(digest)
        if known is None or not hmac.compare_digest(known.record.digest, digest):
            return None
        if not known.record.is_valid(self._now_ms()):
            return None
        return Access(caller=known.record.id, scopes=known.scopes, key=known.record)


def _is_among(digest: str, digests: tuple[str, ...]) -> bool:
    """In a time that does not depend on which one it is."""
    matches = [hmac.compare_digest(digest, each) for each in digests]
    return any(matches)
