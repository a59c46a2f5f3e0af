"""What `docker compose` needs of set-up's work, under `build/`: the llama.cpp wheel and the demo model.

Hard links where the file system allows it, else copies; both are kept up to date.
"""

import os
import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WHEELS = ROOT / "build" / "wheels"
MODELS = ROOT / "build" / "models"


def provide(wheel: Path, model: Path | None) -> None:
    """Make `build/wheels` hold exactly `wheel`, and `build/models` the demo model."""
    _only(wheel, WHEELS)
    if model is not None:
        _only(model, MODELS)


def _only(source: Path, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob(f"*{source.suffix}"):
        old.unlink()
    target = folder / source.name
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copyfile(source, target)
