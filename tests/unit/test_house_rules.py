"""Rules about the tree itself: sizes, what no file may say, who may import whom."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
MAX_LINES = 400
# Modules that may be longer, each with its reason.
LONG_MODULES: dict[str, str] = {}
# Spelt backwards, so that this file does not break its own rule.
REGISTRY_HOSTS = (
    "gro.ipyp",
    "detsohnohtyp",
    "sjmpn.yrtsiger",
    "gro.naibed.bed",
    "gro.naibed.ytiruces",
)
MACHINE_PATHS = (
    "niam/krow/",
    "derahs/krow/",
    "gnireets/krow/",
    "yrarbil./krow/",
    "sboj_hsab/pmt/",
    "/toor/",
    "/w/pmt/",
)
TEXT_LIMIT_BYTES = 2 << 20


def _tracked() -> list[Path]:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    paths = (ROOT / name for name in names.split("\0") if name)
    return [path for path in paths if path.is_file()]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8") if path.stat().st_size < TEXT_LIMIT_BYTES else ""
    except UnicodeDecodeError:
        return ""


def _mentions(texts: dict[str, str], words: tuple[str, ...]) -> list[str]:
    pattern = re.compile("|".join(re.escape(word[::-1]) for word in words))
    return [
        f"{name}:{number}"
        for name, text in texts.items()
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    return {str(path.relative_to(ROOT)): _text(path) for path in _tracked()}


def test_modules_stay_short(texts: dict[str, str]) -> None:
    lengths = {name: len(text.splitlines()) for name, text in texts.items() if name.endswith(".py")}
    too_long = {
        n: lines for n, lines in lengths.items() if lines > MAX_LINES and n not in LONG_MODULES
    }
    assert not too_long, f"split these, or give a reason in LONG_MODULES: {too_long}"
    assert lengths, "no modules found: the test looks in the wrong place"


def test_the_allow_list_names_only_long_modules(texts: dict[str, str]) -> None:
    needless = [n for n in LONG_MODULES if len(texts.get(n, "").splitlines()) <= MAX_LINES]
    assert not needless, f"no longer long: {needless}"


def test_no_file_names_a_registry_host(texts: dict[str, str]) -> None:
    assert _mentions(texts, REGISTRY_HOSTS) == []


def test_no_file_names_a_path_of_a_machine(texts: dict[str, str]) -> None:
    assert _mentions(texts, MACHINE_PATHS) == []


def test_a_mention_would_be_found() -> None:
    planted = {"a.lock": f"x\n--index-url https://{REGISTRY_HOSTS[0][::-1]}/simple\n"}
    assert _mentions(planted, REGISTRY_HOSTS) == ["a.lock:2"]


def test_the_locks_hold_what_the_project_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    wanted = [Requirement(text) for group in (project["dependencies"], *extras) for text in group]
    locks = "".join(path.read_text() for path in ROOT.glob("requirements*.lock"))
    pins: dict[str, list[str]] = {}
    for name, version in re.findall(r"^([\w.-]+)(?:\[.*?\])?==([^\s;]+)", locks, re.MULTILINE):
        pins.setdefault(name, []).append(version)
    stale = [str(w) for w in wanted if not any(map(w.specifier.contains, pins.get(w.name, [])))]
    assert not stale, f"run `make lock`: {stale}"


def test_every_folder_of_modules_is_a_package() -> None:
    folders = {path.parent for path in _tracked() if path.suffix == ".py"}
    ours = [f for f in folders if f.relative_to(ROOT).parts[:1] in {("schemas",), ("services",)}]
    assert ours
    assert [str(f) for f in ours if not (f / "__init__.py").exists()] == []


def _lint_imports(tree: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter over a tree, which must hold the rules too; the checkout itself stays out of sys.path."""
    code = (
        "from importlinter.cli import lint_imports; raise SystemExit(lint_imports(no_cache=True))"
    )
    command = [sys.executable, "-c", code]
    environment = {"PYTHONPATH": str(tree), "PATH": "", "COLUMNS": "200"}
    return subprocess.run(
        command, cwd=tree, env=environment, check=False, capture_output=True, text=True
    )


@pytest.fixture
def planted_tree(tmp_path: Path) -> Path:
    """A skeleton of the project under the project's own import rules."""
    packages = "schemas migrations tools services services/bus services/engine services/engine/llama services/gateway"
    for (
        package
    ) in f"{packages} services/models services/database services/streams services/cli".split():
        (tmp_path / package).mkdir(parents=True)
        (tmp_path / package / "__init__.py").touch()
    for name in ("pyproject.toml", "tools/import_contracts.py"):
        (tmp_path / name).write_text((ROOT / name).read_text())
    return tmp_path


LEGAL = {
    "services/bus/connection.py": "import nats\n",
    "services/gateway/app.py": "import services.streams\nimport services.bus\n",
    "services/engine/llama/vocabulary.py": "import llama_cpp\n",
    "services/engine/decoder.py": "import llama_cpp\n",
    "services/models/tables.py": "import sqlalchemy\n",
    "services/streams/archive.py": "import sqlalchemy\nimport services.database\nimport schemas\n",
    "services/cli/main.py": "import services.gateway\nimport services.engine\n",
}


def test_legal_imports_pass(planted_tree: Path) -> None:
    for name, text in LEGAL.items():
        (planted_tree / name).write_text(text)
    result = _lint_imports(planted_tree)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("module", "imports", "broken"),
    [
        ("schemas/bad", "services.bus", "schemas is the language"),
        ("services/gateway/bad", "services.engine", "gateway imports only streams"),
        ("services/gateway/bad", "services.models", "gateway imports only streams"),
        ("services/streams/bad", "services.gateway", "services do not import one another"),
        ("services/streams/bad", "services.models", "services do not import one another"),
        ("services/engine/bad", "services.streams", "services do not import one another"),
        ("services/bus/bad", "services.engine", "services do not import one another"),
        ("services/engine/bad", "starlette.responses", "the engine and the bus know no HTTP"),
        ("services/engine/bad", "nats.aio.client", "only services.bus imports nats"),
        ("services/engine/front", "llama_cpp", "only the decoder and the vocabulary adapter"),
        ("services/streams/reader", "sqlalchemy.ext.asyncio", "the archive know SQL"),
        ("services/gateway/bad", "sqlalchemy", "the archive know SQL"),
        ("services/gateway/bad", "services.database", "know the database"),
        ("services/streams/reader", "services.database", "know the database"),
    ],
)
def test_a_planted_bad_import_is_caught(
    planted_tree: Path, module: str, imports: str, broken: str
) -> None:
    (planted_tree / f"{module}.py").write_text(f"import {imports}\n")
    result = _lint_imports(planted_tree)
    assert result.returncode != 0, result.stdout
    verdicts = [line for line in result.stdout.splitlines() if line.endswith("BROKEN")]
    assert any(broken in line for line in verdicts), result.stdout + result.stderr
