"""What browsers of other origins are told. Pure."""

from dataclasses import dataclass
from urllib.parse import urlsplit

METHODS = "GET, POST, DELETE, OPTIONS"
ALLOW_ORIGIN = "Access-Control-Allow-Origin"
ANY, LOCALHOST = "*", "localhost"
LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, kw_only=True)
class CorsPolicy:
    """What browsers are told. origins: `*`, `localhost` (any port of this machine), or a list that is
    sent as it is. With `*` and credentials the origin is reflected: browsers take no `*` then."""

    origins: str = ANY
    methods: str = METHODS
    headers: str = "*"
    allows_credentials: bool = True

    def allowed(self, origin: str | None) -> str | None:
        """The value of `Access-Control-Allow-Origin`; None to send none."""
        if self.origins == LOCALHOST:
            return origin if origin is not None and _is_local(origin) else None
        return origin if self.reflects else self.origins

    @property
    def reflects(self) -> bool:
        """Whether the answer depends on who asks."""
        return self.origins == LOCALHOST or (self.origins == ANY and self.allows_credentials)

    def preflight(self, origin: str | None) -> dict[str, str]:
        """Headers of the answer to OPTIONS."""
        headers = {
            "Access-Control-Allow-Credentials": "true" if self.allows_credentials else "false",
            "Access-Control-Allow-Methods": self.methods,
            "Access-Control-Allow-Headers": self.headers,
        }
        if (allowed := self.allowed(origin)) is not None:
            headers[ALLOW_ORIGIN] = allowed
        return headers | ({"Vary": "Origin"} if self.reflects and origin is not None else {})


def _is_local(origin: str) -> bool:
    try:
        return urlsplit(origin).hostname in LOCAL_HOSTS
    except ValueError:
        return False
