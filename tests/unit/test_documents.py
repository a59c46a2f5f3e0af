"""The documents speak of things that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
LINK = re.compile(r"\]\(([^)#]+)(?:#[^)]*)?\)")
FILE = re.compile(r"`((?:schemas|services|migrations|tests|tools|deploy|docs)/[\w./-]+)`")
MODULE = re.compile(
    r"`((?:bus|edge|engine|gateway|streams|models)(?:\.[a-z_]+)+)(?:\.[A-Z]\w*)?[`.]"
)


def texts() -> dict[str, str]:
    return {str(path.relative_to(ROOT)): path.read_text() for path in DOCUMENTS}


@pytest.mark.parametrize("name", texts())
def test_links_lead_somewhere(name: str) -> None:
    links = [link for link in LINK.findall(texts()[name]) if "://" not in link]
    assert [link for link in links if not ((ROOT / name).parent / link).exists()] == []


@pytest.mark.parametrize("name", texts())
def test_files_that_are_named_exist(name: str) -> None:
    assert [file for file in FILE.findall(texts()[name]) if not (ROOT / file).exists()] == []


def test_modules_that_are_named_exist() -> None:
    """`gateway.admission.Admission` is short for the module services/gateway/admission.py."""
    modules = set(MODULE.findall(texts()["ARCHITECTURE.md"]))
    assert len(modules) > 15
    assert [module for module in sorted(modules) if not _exists(module)] == []


def _exists(module: str) -> bool:
    """A module, a package, or something that a module defines."""
    path = ROOT / "services" / Path(*module.split("."))
    if path.is_dir() or path.with_suffix(".py").exists():
        return True
    owner = path.parent.with_suffix(".py")
    return owner.exists() and re.search(rf"\b{path.name}\b", owner.read_text()) is not None


def test_a_thing_that_does_not_exist_would_be_found() -> None:
    assert not _exists("gateway.nothing")
    assert not _exists("engine.runner.nothing_of_that_name")
    assert _exists("engine.pickup.decide")
    assert FILE.findall("`services/nowhere.py`") == ["services/nowhere.py"]


def test_decisions_are_numbered_and_listed() -> None:
    names = sorted(path.name for path in (ROOT / "docs" / "adr").glob("0*.md"))
    assert [int(name[:4]) for name in names] == list(range(1, len(names) + 1))
    index = (ROOT / "docs" / "adr" / "README.md").read_text()
    assert [name for name in names if f"({name})" not in index] == []
    for name in names:
        text = (ROOT / "docs" / "adr" / name).read_text()
        parts = ("Context", "Decision", "Consequence", "Enforced by")
        assert [part for part in parts if f"**{part}.**" not in text] == [], name
