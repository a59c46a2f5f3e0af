"""Where downloads are kept: the model hub's own cache layout, which llama.cpp and others share.

<hub>/models--<user>--<model>/refs/<branch>            a commit
                             /snapshots/<commit>/<file>  links into
                             /blobs/<oid>                the contents
<files>/<name>                                          what came from an address
"""

import contextlib
import os
import re
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from services.models.downloads.naming import is_model, quant_of, split_of

_COMMIT = re.compile(r"[0-9a-fA-F]{40}")
_HUB_VARIABLES = (
    ("LLAMA_CACHE", ""),
    ("HF_HUB_CACHE", ""),
    ("HUGGINGFACE_HUB_CACHE", ""),
    ("HF_HOME", "hub"),
    ("XDG_CACHE_HOME", "huggingface/hub"),
)
_PREFIX = "models--"


@dataclass(frozen=True, kw_only=True)
class CacheDirs:
    """hub: cache of repositories. files: what addresses gave. Absolute; made when needed."""

    hub: Path
    files: Path


class CachedModel(NamedTuple):
    """name: `user/model:QUANT`. path: its file, the first of a split one."""

    name: str
    path: Path


def cache_dirs(environment: Mapping[str, str]) -> CacheDirs:
    """llama-server's choice, from its variables and the model hub's."""
    home = Path(environment.get("HOME") or Path.home())
    hub = home / ".cache/huggingface/hub"
    for variable, below in _HUB_VARIABLES:
        if base := environment.get(variable):
            hub = Path(base) / below
            break
    xdg = environment.get("XDG_CACHE_HOME")
    files = Path(environment.get("LLAMA_CACHE") or Path(xdg or home / ".cache") / "llama.cpp")
    return CacheDirs(hub=hub.absolute(), files=files.absolute())


def is_safe(path: str) -> bool:
    """Whether a path of a repository stays inside a folder."""
    parts = PurePosixPath(path).parts
    return bool(parts) and not path.startswith("/") and ".." not in parts and "\0" not in path


def is_commit(text: str) -> bool:
    return _COMMIT.fullmatch(text) is not None


class RepoCache:
    """One repository in the hub's cache. Methods raise OSError."""

    def __init__(self, hub: Path, repo: str) -> None:
        self._folder = hub / (_PREFIX + repo.replace("/", "--"))

    def snapshot(self, commit: str, path: str) -> Path:
        return self._folder / "snapshots" / commit / path

    def blob(self, oid: str) -> Path:
        return self._folder / "blobs" / oid

    def remember(self, branch: str, commit: str) -> None:
        """Note which commit a branch is at."""
        write_atomically(self._folder / "refs" / branch, commit)

    def link(self, blob: Path, snapshot: Path) -> None:
        """Make `snapshot` stand for `blob`; where links are impossible the file is moved."""
        snapshot.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            try:
                os.symlink(os.path.relpath(blob, snapshot.parent), snapshot)
            except (PermissionError, NotImplementedError):
                blob.replace(snapshot)

    def files(self) -> dict[str, Path]:
        """Files of the newest known commit, by their path in the repository, in order of it."""
        folder = self._folder / "snapshots" / (self._commit() or "none")
        found = (path for path in folder.rglob("*") if path.is_file())
        return {path.relative_to(folder).as_posix(): path for path in sorted(found)}

    def _commit(self) -> str:
        refs = self._folder / "refs"
        names = sorted(refs.rglob("*"), key=lambda path: (path != refs / "main", path))
        commits = (path.read_text().strip() for path in names if path.is_file())
        return next((commit for commit in commits if is_commit(commit)), "")


def write_atomically(path: Path, text: str) -> None:
    """Readers see the old text or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.{uuid.uuid4().hex}.new")
    new.write_text(text)
    new.replace(path)


def cached_models(hub: Path) -> Iterator[CachedModel]:
    """Every model in the cache. Raises OSError."""
    for folder in sorted(hub.glob(f"{_PREFIX}*--*")):
        repo = folder.name.removeprefix(_PREFIX).replace("--", "/", 1)
        quants: dict[str, Path] = {}
        for path, file in RepoCache(hub, repo).files().items():
            if is_model(path) and split_of(path).index == 1 and (quant := quant_of(path)):
                quants.setdefault(quant, file)
        yield from (CachedModel(f"{repo}:{quant}", file) for quant, file in quants.items())
