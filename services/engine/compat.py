"""What must be equal for another engine to continue a log.

The model's digest is the scheme `gguf-sampled-1`: sha256 over, in this order, the scheme's name, the
file's size as 8 bytes (big-endian), its header (magic, metadata, tensor infos), and `N_SAMPLES`
blocks of `SAMPLE_BYTES`, spread evenly from the end of the header to the end of the file. It is the
same on every machine with the same file, whatever its name and time, and takes milliseconds however
large the file is. Files that differ only between the blocks are taken for equal: it tells models,
quantizations and versions apart, it is no proof against forgery.
"""

from hashlib import sha256
from pathlib import Path
from typing import BinaryIO

from schemas.codec import encode
from schemas.events import Compat
from services.engine.errors import ModelNotLoadable
from services.engine.llama.gguf import Gguf

SCHEME = b"gguf-sampled-1"
N_SAMPLES = 64
SAMPLE_BYTES = 16 * 1024
_CHUNK_BYTES = 1 << 20


def model_digest(path: str, header: Gguf) -> str:
    """The digest of a model file in hex. Blocks for file I/O (about 1 MB and the header).

    Raises ModelNotLoadable when the file cannot be read.
    """
    try:
        with Path(path).open("rb") as file:
            return _digest(file, header)
    except OSError as error:
        raise ModelNotLoadable(f"cannot read the model file {path}: {error.strerror}") from error


def _digest(file: BinaryIO, header: Gguf) -> str:
    digest = sha256(SCHEME + header.n_file_bytes.to_bytes(8, "big"))
    left = header.n_header_bytes
    while left > 0 and (chunk := file.read(min(left, _CHUNK_BYTES))):
        digest.update(chunk)
        left -= len(chunk)
    for offset in sample_offsets(header.n_header_bytes, header.n_file_bytes):
        file.seek(offset)
        digest.update(file.read(SAMPLE_BYTES))
    return digest.hexdigest()


def sample_offsets(start: int, end: int) -> list[int]:
    """Where the sampled blocks of the bytes from start to end begin: evenly, the last at the end."""
    last = max(start, end - SAMPLE_BYTES)
    if last - start <= N_SAMPLES * SAMPLE_BYTES:
        return list(range(start, end, SAMPLE_BYTES))
    return [start + (last - start) * i // (N_SAMPLES - 1) for i in range(N_SAMPLES)]


def make_compat(*, model: str, template: str, n_ctx: int, build: str) -> Compat:
    """model, template: digests. n_ctx: tokens per slot. build: engine software."""
    return Compat(model=model, template=template, n_ctx=n_ctx, build=build)


def compat_digest(compat: Compat) -> str:
    """One name for all of it, in hex, as descriptions show it."""
    return sha256(encode(compat)).hexdigest()
