"""Which file of a repository is meant."""

import pytest

from services.models.downloads.cache import cache_dirs, is_safe
from services.models.downloads.naming import choose, is_model, parse_repo, quant_of, split_of
from services.models.errors import DownloadFailed

PATHS = [
    "README.md",
    "imatrix-x.gguf",
    "m-BF16-00001-of-00002.gguf",
    "m-BF16-00002-of-00002.gguf",
    "m-Q4_K_M.gguf",
    "m-Q8_0.gguf",
    "mmproj-m-Q8_0.gguf",
    "sub/m-Q6_K.gguf",
]


def chosen(quant: str = "", file: str = "", paths: list[str] = PATHS) -> tuple[str, ...]:
    return choose("u/m", paths, quant=quant, file=file)


@pytest.mark.parametrize(
    ("quant", "path"),
    [
        ("", "m-Q4_K_M.gguf"),
        ("q8_0", "m-Q8_0.gguf"),
        ("Q6_K", "sub/m-Q6_K.gguf"),
        ("bf16", "m-BF16-00001-of-00002.gguf"),
        ("Q4_K", None),
        (".*", None),
    ],
)
def test_quants(quant: str, path: str | None) -> None:
    if path is not None:
        assert chosen(quant)[0] == path
        return
    with pytest.raises(DownloadFailed, match=r"; it has BF16, Q4_K_M, Q8_0, Q6_K$"):
        chosen(quant)


def test_without_a_quant_the_first_model_will_do() -> None:
    assert chosen(paths=["mmproj-Q4_K_M.gguf", "b-F16.gguf", "a.gguf"]) == ("b-F16.gguf",)
    assert chosen(paths=["b-F16.gguf", "a-Q8_0.gguf"]) == ("a-Q8_0.gguf",)


def test_a_file_may_be_any() -> None:
    assert chosen(file="mmproj-m-Q8_0.gguf") == ("mmproj-m-Q8_0.gguf",)


def test_all_parts_come_the_wanted_one_first() -> None:
    first, second = PATHS[2], PATHS[3]
    assert chosen("BF16") == (first, second)
    assert chosen(file=second) == (second, first)


def test_there_may_be_nothing() -> None:
    with pytest.raises(DownloadFailed, match=r"^u/m has no GGUF file$"):
        chosen(paths=["README.md"])


@pytest.mark.parametrize(
    ("name", "prefix", "index", "n"),
    [
        ("a/x-00002-of-00003.gguf", "a/x", 2, 3),
        ("x-Q8_0.gguf", "x-Q8_0", 1, 1),
        ("x-00004-of-00003.gguf", "x-00004-of-00003", 1, 1),
        ("x-00000-of-00003.gguf", "x-00000-of-00003", 1, 1),
        ("x-99999-of-99999.gguf", "x-99999-of-99999", 1, 1),
        ("x-00001-of-00002", "x-00001-of-00002", 1, 1),
    ],
)
def test_splits(name: str, prefix: str, index: int, n: int) -> None:
    split = split_of(name)
    assert (split.prefix, split.index, split.n) == (prefix, index, n)


@pytest.mark.parametrize(
    ("path", "quant"),
    [("m-q4_k_m.gguf", "Q4_K_M"), ("m.F16.gguf", "F16"), ("m.gguf", ""), (PATHS[2], "BF16")],
)
def test_quant_of(path: str, quant: str) -> None:
    assert quant_of(path) == quant


def test_what_is_no_model() -> None:
    assert [path for path in PATHS if not is_model(path)] == [PATHS[0], PATHS[1], PATHS[6]]


@pytest.mark.parametrize(
    "text", ["", "m", "a/b/c", "/a", "a/", "a/b..c", ".a/b", "a /b", "a/b/../c", "é/b", "a" * 300]
)
def test_what_is_no_repository(text: str) -> None:
    with pytest.raises(DownloadFailed, match="is no repository"):
        parse_repo(text)


def test_repository_and_quant() -> None:
    assert parse_repo("a-b/c.d_e-f:Q4_0") == ("a-b/c.d_e-f", "Q4_0")
    assert parse_repo("a/b") == ("a/b", "")


@pytest.mark.parametrize("path", ["", "/x", "../x", "a/../x", "a\0b", ".."])
def test_paths_that_would_leave(path: str) -> None:
    assert not is_safe(path)


@pytest.mark.parametrize(
    ("environment", "hub", "files"),
    [
        ({}, "/h/.cache/huggingface/hub", "/h/.cache/llama.cpp"),
        ({"XDG_CACHE_HOME": "/x"}, "/x/huggingface/hub", "/x/llama.cpp"),
        ({"HF_HOME": "/f", "XDG_CACHE_HOME": "/x"}, "/f/hub", "/x/llama.cpp"),
        ({"HUGGINGFACE_HUB_CACHE": "/o", "HF_HOME": "/f"}, "/o", "/h/.cache/llama.cpp"),
        ({"HF_HUB_CACHE": "/n", "HF_HOME": "/f"}, "/n", "/h/.cache/llama.cpp"),
        ({"LLAMA_CACHE": "/l", "HF_HUB_CACHE": "/n"}, "/l", "/l"),
    ],
)
def test_where_the_cache_is(environment: dict[str, str], hub: str, files: str) -> None:
    dirs = cache_dirs({"HOME": "/h"} | environment)
    assert (str(dirs.hub), str(dirs.files)) == (hub, files)
