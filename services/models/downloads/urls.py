"""Addresses: taken apart, and shown without their secrets. Pure."""

import base64
from urllib.parse import SplitResult, quote, unquote, urlsplit, urlunsplit

from services.models.errors import DownloadFailed

SCHEMES = ("http", "https")


def parse_url(url: str) -> SplitResult:
    """Raises DownloadFailed for what is no http or https address."""
    try:
        parts = urlsplit(url)
        has_host = bool(parts.hostname) and (parts.port or 0) >= 0
    except ValueError:
        has_host, parts = False, urlsplit("")
    if not has_host or parts.scheme not in SCHEMES:
        raise DownloadFailed(f"{url!r} is no http or https address")
    return parts


def origin(url: str) -> tuple[str, str]:
    """What must be equal for a secret to be sent along."""
    parts = urlsplit(url)
    return parts.scheme, parts.netloc.rpartition("@")[2].lower()


def shown(url: str) -> str:
    """Without user, password, query and fragment: they may be secrets."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def without_user(url: str) -> tuple[str, str]:
    """The address without user and password, and the value of `Authorization` that they make."""
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    if not at:
        return url, ""
    basic = base64.b64encode(unquote(user).encode()).decode()
    return urlunsplit(parts._replace(netloc=host)), f"Basic {basic}"


def quoted(path: str) -> str:
    """A path of a repository, as a part of an address."""
    return quote(path, safe="/")


def file_name(url: str) -> str:
    """The last part of the path. Raises DownloadFailed where there is none."""
    name = unquote(parse_url(url).path.rpartition("/")[2])
    if not name or name in (".", "..") or "/" in name or "\0" in name:
        raise DownloadFailed(f"{shown(url)} names no file")
    return name
