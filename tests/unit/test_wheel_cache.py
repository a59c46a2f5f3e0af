"""The cache of the llama.cpp wheel: what its key depends on, and that no half wheel stays in it."""

import io
from pathlib import Path

import pytest

from tools import wheel_cache

WHEEL = "llama_cpp_python-0.3.36-py3-none-any.whl"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name in wheel_cache.BUILD_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def _program(folder: Path, name: str, script: str) -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def _pip_that(folder: Path, does: str) -> Path:
    """A stand-in for `.venv/bin/python`: `-w` comes right before the folder that the wheel goes to."""
    find = 'while [ "$1" != -w ]; do shift; done'
    return _program(folder, "python", f"{find}\n{does}")


def test_the_key_does_not_depend_on_where_the_checkout_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = wheel_cache.cache_key()
    moved = tmp_path / "moved.cmake"
    moved.write_text("# another comment\n" + wheel_cache.CMAKE_INCLUDE.read_text())
    monkeypatch.setattr(wheel_cache, "CMAKE_INCLUDE", moved)
    assert wheel_cache.cache_key() == here


@pytest.mark.parametrize("variable", ["CMAKE_ARGS", "CXX", "CFLAGS"])
def test_other_flags_are_another_key(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = wheel_cache.cache_key()
    monkeypatch.setenv(variable, "-DGGML_CUDA=ON")
    assert wheel_cache.cache_key() != plain


def test_another_switch_is_another_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = wheel_cache.cache_key()
    other = tmp_path / "other.cmake"
    other.write_text("set(LLAMA_BUILD_COMMON ON)\n")
    monkeypatch.setattr(wheel_cache, "CMAKE_INCLUDE", other)
    assert wheel_cache.cache_key() != plain


def test_a_wheel_is_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheel_cache, "check_tools", lambda: None)
    built = wheel_cache.wheel("key", _pip_that(tmp_path, f'echo made > "$2/{WHEEL}"'))
    assert built == tmp_path / "llamatape" / "wheels" / "key" / WHEEL
    assert sorted(path.name for path in built.parent.iterdir()) == ["build.log", WHEEL]
    assert wheel_cache.wheel("key", tmp_path / "no such python") == built


def test_a_failed_build_leaves_its_log_and_no_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wheel_cache, "check_tools", lambda: None)
    fails = _pip_that(tmp_path, f'echo half > "$2/{WHEEL}"; echo out of memory; exit 1')
    with pytest.raises(wheel_cache.WheelError, match=r"did not build.*build\.log"):
        wheel_cache.wheel("key", fails)
    assert wheel_cache.cached_wheel("key") is None
    left = list(wheel_cache.cache_folder("key").iterdir())
    assert [path.name for path in left] == ["build.log"]
    assert left[0].read_text() == "out of memory\n"


@pytest.mark.parametrize(
    ("there", "missing"),
    [([], "C compiler"), (["cc"], "C\\+\\+ compiler"), (["cc", "g++"], "CMake")],
)
def test_a_missing_tool_is_one_clear_line(
    there: list[str], missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in there:
        _program(tmp_path, name, "exit 0")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        wheel_cache.WheelError, match=f"no {missing} found.*apt-get install g"
    ) as error:
        wheel_cache.check_tools()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "  [41/136] /usr/bin/g++ -I/llama.cpp/src -c /llama.cpp/src/gguf.cpp",
            "step 41 of 136, gguf.cpp",
        ),
        ("[ 45%] Building CXX object src/llama-vocab.cpp.o", "45 %, llama-vocab.cpp"),
        ("[136/136] Linking", "step 136 of 136"),
        ("-- Configuring done", "fetching and configuring"),
    ],
)
def test_progress_of_ninja_and_make(line: str, said: str) -> None:
    log = io.StringIO()
    with wheel_cache._Progress(log) as progress:
        progress.follow(io.StringIO(line + "\n"))
    assert progress.last == said
    assert log.getvalue() == line + "\n"
