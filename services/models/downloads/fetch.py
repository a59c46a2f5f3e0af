"""From what a user named to a file on this machine."""

import logging
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from services.logs import event
from services.models.downloads import urls
from services.models.downloads.cache import CacheDirs, RepoCache, cache_dirs
from services.models.downloads.hub import DEFAULT_ENDPOINT, Hub, HubFile
from services.models.downloads.naming import PRESET, choose, parse_repo, split_of
from services.models.downloads.receipts import DOWNLOADED, FAILED, Receipt
from services.models.downloads.transfer import (
    WAITS_S,
    Progress,
    Transfer,
    Transferred,
    Wanted,
)
from services.models.downloads.web import Refused, Trouble
from services.models.errors import DownloadFailed

log = logging.getLogger(__name__)

_HINTS = {
    401: "; it may be private or gated: --hf-token",
    403: "; it may be private or gated: --hf-token",
}


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where a model comes from: `repo` (user/model[:quant]) or `url`.

    file: of the repository, instead of a quant. path: where a file from an address goes, empty for
    the cache. token, endpoint: of the hub. is_offline: only what is in the cache.
    """

    repo: str = ""
    file: str = ""
    url: str = ""
    path: str = ""
    token: str = ""
    is_offline: bool = False
    endpoint: str
    dirs: CacheDirs


def source_of(
    environment: Mapping[str, str],
    *,
    repo: str = "",
    file: str = "",
    url: str = "",
    path: str = "",
    token: str = "",
    is_offline: bool = False,
) -> Source:
    """The rest is said by the environment, in llama-server's variables and the hub's."""
    endpoint = environment.get("MODEL_ENDPOINT") or environment.get("HF_ENDPOINT")
    return Source(
        repo=repo,
        file=file,
        url=url,
        path=path,
        token=token,
        is_offline=is_offline,
        endpoint=endpoint or DEFAULT_ENDPOINT,
        dirs=cache_dirs(environment),
    )


@dataclass(frozen=True, kw_only=True)
class _Origin:
    """What a receipt says of where a file came from."""

    url: str
    repo: str = ""
    revision: str = ""
    file: str = ""


class Fetch:
    """One model. receipts: of every file that was fetched, or was to be. `run` blocks."""

    def __init__(
        self, source: Source, on_progress: Progress, waits_s: tuple[float, ...] = WAITS_S
    ) -> None:
        self._source, self._on_progress, self._waits_s = source, on_progress, waits_s
        self._hub = Hub(source.endpoint, source.token)
        self.receipts: list[Receipt] = []

    def run(self) -> Path:
        """The file to load; its other parts lie beside it. Raises DownloadFailed, one line."""
        try:
            return self._of_repo() if self._source.repo else self._of_url()
        except OSError as error:
            raise DownloadFailed(f"the cache of models is not usable: {error}") from error

    # ---- from a hub

    def _of_repo(self) -> Path:
        repo, quant = parse_repo(self._source.repo)
        cache = RepoCache(self._source.dirs.hub, repo)
        online = () if self._source.is_offline else self._list(repo, cache)
        cached = {} if online else cache.files()
        paths = [file.path for _, file in online] or list(cached)
        if not paths:
            raise self._nothing(repo)
        if PRESET in paths:
            raise DownloadFailed(f"{repo} is a preset for several models: not supported yet")
        chosen = choose(repo, paths, quant=quant, file=self._source.file)
        if not online:
            return cached[chosen[0]]
        by_path = {file.path: (commit, file) for commit, file in online}
        found = [self._get(repo, cache, *by_path[path]) for path in chosen]
        return found[0]

    def _list(self, repo: str, cache: RepoCache) -> Sequence[tuple[str, HubFile]]:
        """Files with their commit; empty where the hub does not answer but the cache may."""
        try:
            revision = self._hub.newest(repo)
            files = self._hub.files(repo, revision.commit)
        except (Trouble, Refused) as error:
            if not cache.files():
                raise self._unlisted(repo, error) from error
            event(log, "hub_skipped", level=logging.WARNING, reason=f"cache is used: {error}")
            return ()
        cache.remember(revision.branch, revision.commit)
        return [(revision.commit, file) for file in files]

    def _unlisted(self, repo: str, error: Trouble | Refused) -> DownloadFailed:
        hint = _HINTS.get(error.status, "") if isinstance(error, Refused) else ""
        return DownloadFailed(
            f"cannot find {repo} at {urls.shown(self._hub.endpoint)}: {error}{hint}"
        )

    def _nothing(self, repo: str) -> DownloadFailed:
        if self._source.is_offline:
            return DownloadFailed(f"{repo} is not in the cache {self._source.dirs.hub} (--offline)")
        return DownloadFailed(f"{repo} has no files")

    def _get(self, repo: str, cache: RepoCache, commit: str, file: HubFile) -> Path:
        snapshot = cache.snapshot(commit, file.path)
        if snapshot.exists():
            return snapshot
        target = cache.blob(file.oid) if file.oid else snapshot
        if not target.exists():
            wanted = Wanted(
                url=file.url,
                path=target,
                token=self._source.token,
                sha256=file.sha256,
                size_bytes=file.size_bytes,
            )
            self._transfer(
                wanted, _Origin(url=file.url, repo=repo, revision=commit, file=file.path)
            )
        if target != snapshot:
            cache.link(target, snapshot)
        return snapshot

    # ---- from an address

    def _of_url(self) -> Path:
        name = urls.file_name(self._source.url)
        split = split_of(name)
        names = [name] if split.n == 1 else [split.part(i) for i in range(1, split.n + 1)]
        found = [self._get_url(part, is_only=split.n == 1) for part in names]
        return found[0]

    def _get_url(self, name: str, *, is_only: bool) -> Path:
        given = Path(self._source.path) if self._source.path else None
        if given is None:
            path = self._source.dirs.files / name
        else:
            path = given if is_only else given.with_name(name)
        if not self._source.is_offline:
            url = _with_name(self._source.url, name)
            is_hub = urls.origin(url) == urls.origin(self._hub.endpoint)
            token = self._source.token if is_hub else ""
            wanted = Wanted(url=url, path=path, token=token, keeps_etag=True)
            self._transfer(wanted, _Origin(url=url))
        elif not path.exists():
            raise DownloadFailed(f"{path} is not there, and --offline forbids to download it")
        return path

    # ---- both

    def _transfer(self, wanted: Wanted, origin: _Origin) -> None:
        started_at_ms = _now_ms()
        try:
            done = Transfer(wanted, self._on_progress, self._waits_s).run()
        except DownloadFailed as error:
            self._note(wanted, origin, started_at_ms, error=str(error))
            raise
        if done.is_new:
            self._note(wanted, origin, started_at_ms, done)

    def _note(
        self,
        wanted: Wanted,
        origin: _Origin,
        started_at_ms: int,
        done: Transferred | None = None,
        error: str = "",
    ) -> None:
        receipt = Receipt(
            id=str(uuid.uuid4()),
            repo=origin.repo,
            revision=origin.revision,
            file=origin.file,
            url=urls.shown(origin.url),
            path=str(wanted.path.absolute()),
            size_bytes=done.size_bytes if done else 0,
            etag=done.etag if done else "",
            digest=done.sha256 if done else "",
            started_at_ms=started_at_ms,
            ended_at_ms=_now_ms(),
            outcome=DOWNLOADED if done else FAILED,
            error=error,
        )
        self.receipts.append(receipt)


def _with_name(url: str, name: str) -> str:
    parts = urlsplit(url)
    folder = parts.path.rpartition("/")[0]
    return urlunsplit(parts._replace(path=f"{folder}/{urls.quoted(name)}", fragment=""))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
