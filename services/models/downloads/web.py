"""HTTP requests over the standard library: http and https only, redirects, proxies of the environment.

A secret goes to the origin it is meant for and is dropped when a redirect leads elsewhere.
"""

import http.client
import json
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from email.message import Message
from typing import IO, cast
from urllib import request
from urllib.error import HTTPError, URLError

from services.models.downloads.urls import origin, parse_url, shown, without_user

TIMEOUT_S = 30.0
USER_AGENT = "llamatape"
JSON_MAX_BYTES = 64 << 20
Response = http.client.HTTPResponse


class Trouble(Exception):
    """The server could not be reached, or broke off, or says that it is overloaded: try again."""


class Refused(Exception):
    """The server answered, and it was not what was asked for. status: HTTP's. Trying again is no use."""

    def __init__(self, status: int, reason: str, headers: Mapping[str, str]) -> None:
        super().__init__(f"{status} {reason}".strip())
        self.status = status
        self.headers = headers


class _Redirects(request.HTTPRedirectHandler):
    def redirect_request(
        self,
        req: request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: Message,
        newurl: str,
    ) -> request.Request | None:
        following = super().redirect_request(req, fp, code, msg, headers, newurl)  # pyright: ignore[reportArgumentType]
        if following is not None and origin(following.full_url) != origin(req.full_url):
            following.remove_header("Authorization")
        return following


def _opener() -> request.OpenerDirector:
    opener = request.OpenerDirector()
    for handler in (
        request.ProxyHandler(),
        request.UnknownHandler(),
        request.HTTPHandler(),
        request.HTTPSHandler(),
        request.HTTPDefaultErrorHandler(),
        _Redirects(),
        request.HTTPErrorProcessor(),
    ):
        opener.add_handler(handler)
    return opener


@contextmanager
def get(url: str, headers: Mapping[str, str]) -> Generator[Response]:
    """A successful answer, its body unread. Raises Trouble, Refused, DownloadFailed (a bad address)."""
    parse_url(url)
    address, basic = without_user(url)
    asked = request.Request(address, headers={"User-Agent": USER_AGENT, **headers})
    if basic:
        asked.add_header("Authorization", basic)
    try:
        answer = cast(Response, _opener().open(asked, timeout=TIMEOUT_S))
    except HTTPError as error:
        with error:
            raise _failure(error) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise Trouble(f"{shown(url)}: {_why(error)}") from error
    with answer:
        yield answer


def get_json(url: str, token: str) -> object:
    """The decoded body. Raises Trouble, Refused, DownloadFailed."""
    with get(url, {"Accept": "application/json", **bearer(token)}) as answer:
        try:
            return json.loads(read(answer, JSON_MAX_BYTES))
        except ValueError as error:
            raise Trouble(f"{shown(url)} answered with what is no JSON") from error


def read(answer: Response, n_bytes: int) -> bytes:
    """Up to `n_bytes` of the body, empty at its end. Raises Trouble."""
    try:
        return answer.read(n_bytes)
    except (OSError, http.client.HTTPException) as error:
        raise Trouble(_why(error)) from error


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"} if token else {}


def _failure(error: HTTPError) -> Trouble | Refused:
    if error.code in (408, 425, 429) or error.code >= 500:
        return Trouble(f"{shown(error.url or '')}: {error.code} {error.reason}")
    return Refused(error.code, _stated(error) or str(error.reason), dict(error.headers.items()))


def _stated(error: HTTPError) -> str:
    """What a hub says in its JSON; empty for anything else."""
    with suppress(OSError, ValueError, http.client.HTTPException):
        body: object = json.loads(error.read(1 << 16))
        if isinstance(body, dict):
            said = cast("dict[str, object]", body).get("error")
            return said if isinstance(said, str) else ""
    return ""


def _why(error: Exception) -> str:
    reason: object = error.reason if isinstance(error, URLError) else error
    if isinstance(reason, OSError) and reason.strerror:
        return reason.strerror
    return str(reason) or type(reason).__name__
