"""A hub with a model, and downloads from it that do not wait between tries."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from services.models.downloads.fetch import Fetch, Source, source_of
from services.models.downloads.receipts import Receipt
from services.models.errors import DownloadFailed
from tests.support.hub import Hub, oid_of

REPO = "user/model-GGUF"
CONTENT = bytes(range(256)) * 4096
OTHER = CONTENT[::-1]
FILE = "model-Q4_K_M.gguf"
SPLIT = [f"big/model-Q8_0-0000{n}-of-00003.gguf" for n in (1, 2, 3)]
NO_WAITS = (0.0, 0.0, 0.0)


class Fetched(NamedTuple):
    path: Path
    receipts: list[Receipt]


@pytest.fixture(name="hub")
def a_hub() -> Iterator[Hub]:
    found = Hub()
    found.repos[REPO] = {
        "README.md": b"# a model",
        "mmproj-model-F16.gguf": b"GGUF projector",
        FILE: CONTENT,
        **{path: f"GGUF part {n}".encode() for n, path in enumerate(SPLIT)},
    }
    found.files["plain.gguf"] = CONTENT
    with found.running():
        yield found


@pytest.fixture(name="cache")
def a_cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def source(
    hub: Hub,
    cache: Path,
    *,
    repo: str = "",
    file: str = "",
    url: str = "",
    path: str = "",
    token: str = "",
    is_offline: bool = False,
) -> Source:
    return source_of(
        {"HF_ENDPOINT": hub.url, "LLAMA_CACHE": str(cache)},
        repo=repo,
        file=file,
        url=url,
        path=path,
        token=token,
        is_offline=is_offline,
    )


def fetch(wanted: Source) -> Fetched:
    work = Fetch(wanted, lambda *_: None, NO_WAITS)
    return Fetched(work.run(), work.receipts)


def refuse(wanted: Source) -> str:
    work = Fetch(wanted, lambda *_: None, NO_WAITS)
    with pytest.raises(DownloadFailed) as caught:
        work.run()
    message = str(caught.value)
    assert "\n" not in message
    return message


def blob(cache: Path, content: bytes = CONTENT) -> Path:
    return cache / "models--user--model-GGUF" / "blobs" / oid_of(content)


def leftovers(cache: Path) -> list[str]:
    return [path.name for path in cache.rglob("*downloadInProgress*")]
