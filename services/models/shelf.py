"""Models that lie about on this machine: in a folder, in the cache of downloads. Blocks: use a thread."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from services.models.downloads.cache import CachedModel, cached_models
from services.models.downloads.naming import SUFFIX, is_model, split_of

T = TypeVar("T")

CACHE, MODELS_DIR, REGISTRY = "cache", "models_dir", "registry"


@dataclass(frozen=True, kw_only=True)
class Folders:
    """Where to look. hub: cache of repositories. models: a user's folder. None for none."""

    hub: Path | None = None
    models: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Found:
    """A model. path: of the file to load (the first of a split one). source: how it was found."""

    name: str
    path: Path
    source: str


def find(folders: Folders) -> tuple[Found, ...]:
    """All models, by name. As in llama-server a folder's go before the cache's of the same name.

    Never raises: what cannot be read is not there.
    """
    found: dict[str, Found] = {}
    if folders.hub is not None:
        found.update((each.name, _of_cache(each)) for each in _safely(cached_models(folders.hub)))
    if folders.models is not None:
        found.update((each.name, each) for each in _safely(_in_folder(folders.models)))
    return tuple(found[name] for name in sorted(found))


def _safely(found: Iterator[T]) -> Iterator[T]:
    while True:
        try:
            yield next(found)
        except (StopIteration, OSError):
            return


def _of_cache(model: CachedModel) -> Found:
    return Found(name=model.name, path=model.path, source=CACHE)


def _in_folder(folder: Path) -> Iterator[Found]:
    """A file is a model of its own name, a folder one of the folder's."""
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            yield from _in_subfolder(path)
        elif is_model(path.name) and split_of(path.name).index == 1:
            name = path.name.removesuffix(SUFFIX)
            yield Found(name=name, path=path, source=MODELS_DIR)


def _in_subfolder(folder: Path) -> Iterator[Found]:
    firsts = [
        path
        for path in sorted(folder.iterdir())
        if path.is_file() and is_model(path.name) and split_of(path.name).index == 1
    ]
    splits = [path for path in firsts if split_of(path.name).n > 1]
    for path in (splits or firsts)[:1]:
        yield Found(name=folder.name, path=path, source=MODELS_DIR)
