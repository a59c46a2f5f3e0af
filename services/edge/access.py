"""Who is asking, and what that allows: the outcome of authentication, one per request."""

from dataclasses import dataclass, field

from starlette.requests import Request

from schemas.keys import USUAL_SCOPES, KeyRecord

USUAL = frozenset(USUAL_SCOPES)


@dataclass(kw_only=True, slots=True)
class Access:
    """caller: key id, "" where no keys are asked for. key: the key's record; None for keys of flags,
    which have no limits. headers: what has to go along with the answer, whoever makes it."""

    caller: str = ""
    scopes: frozenset[str] = USUAL
    key: KeyRecord | None = None
    headers: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def content(self) -> str:
        """What may be kept of prompts and answers; empty for the server's default."""
        return "" if self.key is None else self.key.content


def access_of(request: Request) -> Access:
    """The access of a request that went through the authentication."""
    return request.state.access
