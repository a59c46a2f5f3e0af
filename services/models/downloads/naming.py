"""Names of GGUF files: quants, splits, and which file of a repository is meant. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from services.models.errors import DownloadFailed

DEFAULT_QUANTS = ("Q4_K_M", "Q8_0")
NO_MODELS = ("mmproj", "imatrix", "mtp-", "eagle3-", "dflash-", "dspark-")
"""What a name of a GGUF file that is no language model contains."""
PRESET = "preset.ini"
SUFFIX = ".gguf"
MAX_SPLITS = 9999
_SPLIT = re.compile(r"(.+)-(\d{5})-of-(\d{5})", re.ASCII | re.IGNORECASE | re.DOTALL)
_QUANT = re.compile(r"[-.]([A-Z0-9_]+)$", re.ASCII | re.IGNORECASE)
_REPO = re.compile(r"\w+([.-]\w+)*/\w+([.-]\w+)*", re.ASCII)
_REPO_MAX_CHARS = 256


@dataclass(frozen=True, kw_only=True)
class Split:
    """One file of a model in `n` files. prefix: the name before the numbers. index: from 1."""

    prefix: str
    index: int = 1
    n: int = 1

    def part(self, index: int) -> str:
        """The name of one of the files."""
        return f"{self.prefix}-{index:05}-of-{self.n:05}{SUFFIX}"


def split_of(name: str) -> Split:
    """How `name` is split; a whole file is the only one of its model."""
    stem = name.removesuffix(SUFFIX)
    found = _SPLIT.fullmatch(stem) if stem != name else None
    if found is None or not 1 <= int(found[2]) <= int(found[3]) <= MAX_SPLITS:
        return Split(prefix=stem)
    return Split(prefix=found[1], index=int(found[2]), n=int(found[3]))


def quant_of(path: str) -> str:
    """`Q4_K_M` of `x-Q4_K_M-00001-of-00002.gguf`; empty where the name says none."""
    found = _QUANT.search(split_of(path).prefix)
    return found[1].upper() if found else ""


def parse_repo(text: str) -> tuple[str, str]:
    """Repository and quant of `user/model[:quant]`. Raises DownloadFailed."""
    repo, _, quant = text.partition(":")
    if len(repo) > _REPO_MAX_CHARS or _REPO.fullmatch(repo) is None:
        raise DownloadFailed(f"{text!r} is no repository: expected user/model[:quant]")
    return repo, quant


def is_model(path: str) -> bool:
    name = path.rpartition("/")[2]
    return name.endswith(SUFFIX) and not any(word in name for word in NO_MODELS)


def choose(repo: str, paths: Sequence[str], *, quant: str, file: str) -> tuple[str, ...]:
    """The files of the wanted model, the one to load first. `file` wins over `quant`.

    Raises DownloadFailed naming what there is.
    """
    first = _named(paths, file) if file else _of_quant(paths, quant)
    if first is None:
        wanted = f"no file {file}" if file else f"no GGUF file of quant {quant}" if quant else ""
        raise DownloadFailed(f"{repo} has {wanted or 'no GGUF file'}{_there_is(paths)}")
    return _with_parts(repo, paths, first)


def _named(paths: Sequence[str], file: str) -> str | None:
    return file if file in paths else None


def _of_quant(paths: Sequence[str], quant: str) -> str | None:
    """llama-server's choice: the first whose name holds the quant before a dash or a dot."""
    firsts = [path for path in paths if is_model(path) and split_of(path).index == 1]
    for wanted in (quant,) if quant else DEFAULT_QUANTS:
        pattern = re.compile(re.escape(wanted) + "[.-]", re.IGNORECASE)
        if found := next((path for path in firsts if pattern.search(path)), None):
            return found
    return None if quant else next(iter(firsts), None)


def _with_parts(repo: str, paths: Sequence[str], first: str) -> tuple[str, ...]:
    split = split_of(first)
    if split.n == 1:
        return (first,)
    parts = [split.part(index) for index in range(1, split.n + 1)]
    missing = [part for part in parts if part not in paths]
    if missing:
        raise DownloadFailed(f"{repo} lacks {missing[0]}, a part of {first}")
    return first, *(part for part in parts if part != first)


def _there_is(paths: Sequence[str]) -> str:
    models = [path for path in paths if is_model(path)]
    quants = dict.fromkeys(quant for path in models if (quant := quant_of(path)))
    names = list(quants) or models
    return f"; it has {', '.join(names[:20])}" if names else ""
