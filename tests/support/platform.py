"""The whole platform for tests: `llamatape serve` in a process of its own, found by its first line."""

import re
import subprocess
import sys
from pathlib import Path

import httpx
from openai import OpenAI

from tests.support.processes import Session

ROOT = Path(__file__).resolve().parents[2]
TINY = ROOT / "tests" / "models" / "stories-tiny.gguf"
SERVE = (sys.executable, "-P", "-m", "services.cli", "serve")


def demo_model() -> Path:
    """SmolLM2-135M-Instruct, where `make setup` put it."""
    tool = ROOT / "tools" / "demo_model.py"
    found = subprocess.run([sys.executable, str(tool)], check=True, capture_output=True, text=True)
    return Path(found.stdout.strip())


def serve(folder: Path, model: Path = TINY, *flags: str) -> Session:
    """Start the platform with its data under `folder`. One thread: two wait for one another on a
    busy machine."""
    line = [*SERVE, "-m", str(model), "--data-dir", str(folder / "data"), "--port", "0"]
    return Session([*line, "-t", "1", *flags], folder=folder, env={"PYTHONPATH": str(ROOT)})


def url_of(session: Session, timeout_s: float = 90) -> str:
    """Where it serves, once the model is loaded."""
    found = re.search(r" at (http://\S+)", session.wait_for("Try:", timeout_s))
    assert found
    return found[1]


def client(url: str) -> httpx.Client:
    return httpx.Client(base_url=url, timeout=90)


def openai_client(url: str) -> OpenAI:
    return OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0, timeout=90)
