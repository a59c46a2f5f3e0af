"""Which models a folder, a cache and the registry make."""

from pathlib import Path

import pytest

from services.models.catalog import ModelSpec
from services.models.listing import merged
from services.models.shelf import CACHE, MODELS_DIR, REGISTRY, Folders, Found, find

COMMIT = "0" * 40


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    names = (
        "one.gguf",
        "mmproj-one.gguf",
        "big-00001-of-00002.gguf",
        "big-00002-of-00002.gguf",
        "notes.txt",
        "two/two-Q4_K_M.gguf",
        "two/mmproj.gguf",
        "three/three-00002-of-00002.gguf",
        "three/three-00001-of-00002.gguf",
        "empty/readme.md",
    )
    for name in names:
        path = tmp_path / "models" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"GGUF")
    return tmp_path / "models"


@pytest.fixture
def hub(tmp_path: Path) -> Path:
    repo = tmp_path / "hub" / "models--user--model"
    for name in ("m-Q4_K_M.gguf", "m-Q8_0-00001-of-00002.gguf", "m-Q8_0-00002-of-00002.gguf"):
        path = repo / "snapshots" / COMMIT / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"GGUF")
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text(COMMIT)
    return tmp_path / "hub"


def test_a_file_and_a_folder_are_models(folder: Path) -> None:
    found = {each.name: each for each in find(Folders(models=folder))}
    assert list(found) == ["big-00001-of-00002", "one", "three", "two"]
    assert found["three"].path == folder / "three" / "three-00001-of-00002.gguf"
    assert found["two"].path == folder / "two" / "two-Q4_K_M.gguf"
    assert {each.source for each in found.values()} == {MODELS_DIR}


def test_the_cache_has_names_with_quants(hub: Path) -> None:
    found = find(Folders(hub=hub))
    assert [(each.name, each.source) for each in found] == [
        ("user/model:Q4_K_M", CACHE),
        ("user/model:Q8_0", CACHE),
    ]
    assert found[1].path.name == "m-Q8_0-00001-of-00002.gguf"


def test_what_is_not_there_is_no_model(tmp_path: Path) -> None:
    assert find(Folders()) == ()
    assert find(Folders(hub=tmp_path / "no", models=tmp_path / "neither")) == ()


def test_the_registry_adds_what_lies_elsewhere(tmp_path: Path) -> None:
    here = Found(name="one", path=tmp_path / "one.gguf", source=MODELS_DIR)
    registered = [
        ModelSpec(key="k", name="one", path="/elsewhere/one.gguf"),
        ModelSpec(key="l", name="alias", path=str(tmp_path / "." / "one.gguf")),
        ModelSpec(key="m", name="far", path="/far/far.gguf", aliases=("a",), tags=("t",)),
    ]
    listed = merged([here], registered)
    assert [(model.name, model.source) for model in listed] == [
        ("far", REGISTRY),
        ("one", MODELS_DIR),
    ]
    assert (listed[0].aliases, listed[0].tags, listed[0].status) == (("a",), ("t",), "unloaded")
