"""The model hub's API, as far as it is needed: branches and file lists. What it says is checked."""

import re
from dataclasses import dataclass
from typing import cast

from services.models.downloads import web
from services.models.downloads.cache import is_commit, is_safe
from services.models.downloads.urls import quoted
from services.models.errors import DownloadFailed

DEFAULT_ENDPOINT = "https://huggingface.co/"
_OID = re.compile(r"[0-9a-fA-F]{40}|[0-9a-fA-F]{64}")
_SHA256_CHARS = 64
JsonObject = dict[str, object]


@dataclass(frozen=True, kw_only=True)
class HubFile:
    """One file of a repository. oid: names its content, empty if unknown. size_bytes: −1 if unknown."""

    path: str
    url: str
    oid: str
    size_bytes: int

    @property
    def sha256(self) -> str:
        """Of the content, in hex; empty where the hub does not name it."""
        return self.oid.lower() if len(self.oid) == _SHA256_CHARS else ""


@dataclass(frozen=True, kw_only=True)
class Revision:
    """A branch and the commit that it is at."""

    branch: str
    commit: str


class Hub:
    """One hub. endpoint: its address. token: for it and nobody else. Methods raise web.Trouble,
    web.Refused, DownloadFailed."""

    def __init__(self, endpoint: str, token: str) -> None:
        self.endpoint = endpoint.rstrip("/") + "/"
        self.token = token

    def newest(self, repo: str) -> Revision:
        """`main`, else the first branch."""
        answer = web.get_json(f"{self.endpoint}api/models/{repo}/refs", self.token)
        branches = cast(JsonObject, answer).get("branches") if isinstance(answer, dict) else None
        found = [revision for item in _objects(branches) if (revision := _revision(item))]
        if not found:
            raise DownloadFailed(f"{self.endpoint} knows no branch of {repo}")
        return next((revision for revision in found if revision.branch == "main"), found[0])

    def files(self, repo: str, commit: str) -> tuple[HubFile, ...]:
        """All files of a commit, in the hub's order."""
        url = f"{self.endpoint}api/models/{repo}/tree/{commit}?recursive=true"
        items = _objects(web.get_json(url, self.token))
        base = f"{self.endpoint}{repo}/resolve/{commit}/"
        return tuple(file for item in items if (file := _file(item, base)))


def _objects(value: object) -> list[JsonObject]:
    items = cast("list[object]", value) if isinstance(value, list) else []
    return [cast(JsonObject, item) for item in items if isinstance(item, dict)]


def _text(item: JsonObject, name: str) -> str:
    value = item.get(name)
    return value if isinstance(value, str) else ""


def _revision(item: JsonObject) -> Revision | None:
    branch, commit = _text(item, "name"), _text(item, "targetCommit")
    is_good = is_commit(commit) and is_safe(branch)
    return Revision(branch=branch, commit=commit) if is_good else None


def _file(item: JsonObject, base: str) -> HubFile | None:
    path, lfs = _text(item, "path"), item.get("lfs")
    large = cast(JsonObject, lfs) if isinstance(lfs, dict) else item
    oid, size = _text(large, "oid"), large.get("size")
    if item.get("type") != "file" or not is_safe(path) or (oid and not _OID.fullmatch(oid)):
        return None
    return HubFile(
        path=path,
        url=base + quoted(path),
        oid=oid,
        size_bytes=size if isinstance(size, int) else -1,
    )
