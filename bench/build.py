"""A real llama-server of the same llama.cpp as the bindings: built once into the user's cache."""

import os
import subprocess
import sys
import tarfile
import tempfile
from importlib import metadata
from pathlib import Path

PACKAGE = "llama-cpp-python"
# Without AMX: GCC before 14 miscompiles those kernels, and not every machine has them.
OPTIONS = """
    -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_FLAGS=-U__AMX_INT8__ -DCMAKE_CXX_FLAGS=-U__AMX_INT8__
    -DLLAMA_CURL=OFF -DLLAMA_BUILD_UI=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF
"""


def llama_server_binary() -> Path:
    """The binary; the first time it is compiled, which takes some 20 minutes on two cores."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = base / "llamatape" / f"llama-server-{metadata.version(PACKAGE)}"
    binary = folder / "bin" / "llama-server"
    if not binary.exists():
        print("building llama-server once (about 20 minutes on two cores)", flush=True)
        _build(folder)
    return binary


def _build(folder: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="llama-server-") as name:
        source = _source(Path(name))
        configure = ["cmake", "-S", str(source), "-B", str(folder), *OPTIONS.split()]
        subprocess.run(configure, check=True)
        jobs = str(os.cpu_count() or 1)
        command = ["cmake", "--build", str(folder), "--target", "llama-server", "-j", jobs]
        subprocess.run(command, check=True)


def _source(folder: Path) -> Path:
    """llama.cpp, from the source distribution of the bindings that are installed."""
    wanted = f"{PACKAGE}=={metadata.version(PACKAGE)}"
    pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--no-binary", PACKAGE, "--dest", str(folder), wanted], check=True)
    with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
        archive.extractall(folder, filter="data")
    return next(folder.glob("*/vendor/llama.cpp"))
