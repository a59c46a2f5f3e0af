"""`make lock`: compile `requirements.lock` (with hashes, without index addresses or machine paths) from pyproject.toml.

uv resolves for every platform and Python at once. It is installed for the moment only: nothing else needs it.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
UV = "uv>=0.9,<1"
# llama-cpp-python stands in requirements-llama.lock: pip must not build it, tools/setup.py does.
OPTIONS = """
    pip compile pyproject.toml --extra build --extra dev --universal --python-version 3.11 --generate-hashes
    --no-emit-package llama-cpp-python --no-emit-index-url --no-emit-find-links --no-header --quiet
    --annotation-style line --no-config --output-file requirements.lock
"""


def main() -> int:
    """Rewrite the lock; extra arguments go to `uv pip compile` (`--upgrade`, `--upgrade-package NAME`)."""
    with tempfile.TemporaryDirectory(prefix="llamatape-lock-") as folder:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", folder, UV]
        subprocess.run(pip, check=True)
        uv = [str(Path(folder) / "bin" / "uv"), *OPTIONS.split(), *sys.argv[1:]]
        return subprocess.run(uv, cwd=ROOT, env=dict(os.environ), check=False).returncode


if __name__ == "__main__":
    raise SystemExit(main())
