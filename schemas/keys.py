"""API keys as gateways know them, and what a key with limits has used.

A key is 256 random bits, so its plain SHA-256 can be stored: there is nothing to guess.
"""

from schemas.struct import Message

GENERATE = "generate"
READ = "read"
ADMIN = "admin"
SCOPES = (GENERATE, READ, ADMIN)
"""generate: begin, order and end one's own generations. read: everything that only tells, one's own
streams included. admin: what is everybody's, as the audit."""
USUAL_SCOPES = (GENERATE, READ)
"""What a key may where nothing else is said, and all that keys of flags may."""

CONTENTS = ("full", "hashes", "none")
"""What may be kept of prompts and answers (`schemas.events.Requested.content`)."""


class KeyLimits(Message, frozen=True, kw_only=True):
    """What a key may use; 0 is no limit. tokens_per_minute: of prompts and answers together.
    concurrent: generations that run or wait at the same time."""

    requests_per_minute: int = 0
    tokens_per_minute: int = 0
    concurrent: int = 0

    @property
    def is_limited(self) -> bool:
        return bool(self.requests_per_minute or self.tokens_per_minute or self.concurrent)


class KeyRecord(Message, frozen=True, kw_only=True):
    """Value of the bucket `api_keys`: one key, never the key itself.

    id: how logs and audit name the caller. digest: sha256 of the key in hex. models: names that it
    may ask, empty for all. content: one of CONTENTS, empty for the server's default. Times are Unix
    milliseconds; expires_at_ms and revoked_at_ms are 0 where that is not so. Of a revoked key the
    record stays: as long as there is any, nobody may ask without a key.
    """

    id: str
    digest: str
    name: str = ""
    scopes: tuple[str, ...] = USUAL_SCOPES
    models: tuple[str, ...] = ()
    limits: KeyLimits = KeyLimits()
    content: str = ""
    created_at_ms: int = 0
    expires_at_ms: int = 0
    revoked_at_ms: int = 0

    def is_valid(self, now_ms: int) -> bool:
        """Whether it opens anything at that time."""
        return not self.revoked_at_ms and (not self.expires_at_ms or now_ms < self.expires_at_ms)

    def may_use(self, names: tuple[str, ...]) -> bool:
        """Whether it may ask the model that has these names."""
        return not self.models or not set(self.models).isdisjoint(names)


class RunningUse(Message, frozen=True, kw_only=True, array_like=True):
    """A generation that counts as running: from when, and until when at the latest, whatever becomes of
    those who should say that it ended (Unix milliseconds). n_reserved: tokens charged for its answer."""

    since_ms: int
    until_ms: int
    n_reserved: int = 0


class KeyUsage(Message, frozen=True, kw_only=True):
    """Value of the bucket `limits`: what one key has used, in the form that a leaky bucket needs.

    requests_until_ns, tokens_until_ns: Unix nanoseconds at which all will have leaked out, so that the
    whole limit is free again. running: by place, which begins with
    the generation's id and a dot; of keys with such a limit.
    """

    requests_until_ns: int = 0
    tokens_until_ns: int = 0
    running: dict[str, RunningUse] = {}
