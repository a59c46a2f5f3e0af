"""Print the part of `requirements.lock` that the product needs when it runs, hashes included.

`python runtime_requirements.py [--of NAME,…] [--without NAME,…]`: everything that the project's own
dependencies (or NAMEs instead, whether locked or not) need, except what `--without` names. Standard library only: images are made
with it before anything is installed.
"""

import argparse
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_VIA = re.compile(r"^\s+# via (.*)$", re.MULTILINE)


def blocks(lock: str) -> dict[str, str]:
    """Each requirement's lines, by name; one that differs by platform has several."""
    found: dict[str, str] = {}
    for block in re.split(r"^(?=[A-Za-z0-9])", lock, flags=re.MULTILINE):
        if match := _NAME.match(block):
            name = normal(match[0])
            found[name] = found.get(name, "") + block
    return found


def parents(block: str) -> set[str]:
    """Who needs it, as the lock's comment tells."""
    told = ", ".join(_VIA.findall(block))
    return {normal(name.split()[0]) for name in told.split(", ") if name}


def normal(name: str) -> str:
    """As package indexes compare names."""
    return re.sub(r"[-_.]+", "-", name).lower()


def closure(lock: dict[str, str], roots: set[str]) -> set[str]:
    """The roots and everything that they need."""
    needed = set(roots)
    while more := {n for n, block in lock.items() if parents(block) & needed} - needed:
        needed |= more
    return needed


def main() -> None:
    """Print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--of", default="")
    parser.add_argument("--without", default="")
    words = parser.parse_args()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = words.of.split(",") if words.of else project["dependencies"]
    roots = {normal(match[0]) for text in asked if (match := _NAME.match(text))}
    roots -= {normal(name) for name in words.without.split(",")}
    lock = blocks((ROOT / "requirements.lock").read_text())
    print("".join(lock[name] for name in sorted(closure(lock, roots) & lock.keys())))


if __name__ == "__main__":
    main()
