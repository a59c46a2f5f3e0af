"""Router mode: which models there are. What the folders hold is found at the first question."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence

from schemas.lifecycle import UNLOADED, ModelStatus
from schemas.rpc import ListModels, ModelList
from schemas.subjects import model_key
from services.models.catalog import ModelSpec
from services.models.files import identify
from services.models.journal import Records, insist
from services.models.shelf import REGISTRY, Folders, Found, find

NS_PER_S = 1_000_000_000


class Listing:
    """Answers ListModels. Event-loop thread; folders are looked at in another.

    The registry adds the models that were served from elsewhere before, once its database is open;
    until then, and while it is away, there are only those of the folders.
    """

    def __init__(self, folders: Folders, open_records: Callable[[], Awaitable[Records]]) -> None:
        self._folders = folders
        self._open_records = open_records
        self._registered: tuple[ModelSpec, ...] = ()
        self._listed: tuple[ModelStatus, ...] | None = None
        self._reading: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to read the registry."""
        self._reading = asyncio.create_task(self._read_registry())

    async def stop(self) -> None:
        """Idempotent."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])
            self._reading = None

    async def answer(self, question: ListModels) -> ModelList:
        """What there is; with `is_fresh` what there is now."""
        if question.is_fresh or self._listed is None:
            self._listed = await asyncio.to_thread(self._look)
        return ModelList(models=self._listed)

    def _look(self) -> tuple[ModelStatus, ...]:
        found = find(self._folders)
        here = [spec for spec in self._registered if os.path.isfile(spec.path)]
        return merged(found, here)

    async def _read_registry(self) -> None:
        records = await insist(self._open_records)
        try:
            self._registered = tuple(await insist(records.models))
            self._listed = None
        finally:
            await records.close()


def merged(found: Sequence[Found], registered: Sequence[ModelSpec]) -> tuple[ModelStatus, ...]:
    """One entry per name and per file: a folder's name of a file goes before the registry's."""
    names = {each.name for each in found}
    paths = {os.path.realpath(each.path) for each in found}
    listed = [_status(each.name, str(each.path), each.source) for each in found]
    for spec in registered:
        if spec.name not in names and os.path.realpath(spec.path) not in paths:
            listed.append(_status(spec.name, spec.path, REGISTRY, spec.aliases, spec.tags))
    return tuple(sorted(listed, key=lambda model: model.name))


def _status(
    name: str,
    path: str,
    source: str,
    aliases: tuple[str, ...] = (),
    tags: tuple[str, ...] = (),
) -> ModelStatus:
    return ModelStatus(
        model_key=model_key(name),
        name=name,
        aliases=aliases,
        tags=tags,
        path=path,
        status=UNLOADED,
        source=source,
        created_at_s=max(0, identify(path).mtime_ns // NS_PER_S),
    )
