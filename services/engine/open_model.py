"""What an engine front reads of its model: header, vocabulary, digest. A simulated one may have none."""

from dataclasses import replace
from hashlib import sha256

from services.engine.byte_vocabulary import N_CTX_TRAIN, ByteVocabulary
from services.engine.compat import model_digest
from services.engine.config import EngineSettings
from services.engine.llama.gguf import Gguf, read_gguf
from services.engine.llama.vocabulary import Vocabulary
from services.engine.options import ModelOptions, numbers_digest

SCHEME = "simulated-1"
"""Changes whenever a simulated decoder says something else: the old one's logs are not continued."""

AnyVocabulary = Vocabulary | ByteVocabulary


def open_vocabulary(settings: EngineSettings) -> tuple[Gguf, AnyVocabulary]:
    """Header and vocabulary. Blocks for file I/O. Raises ModelNotLoadable."""
    if settings.model_path:
        header = _overridden(read_gguf(settings.model_path), settings.model)
        vocabulary = Vocabulary(
            settings.model_path, is_verbose=settings.is_verbose, options=settings.model
        )
        return header, vocabulary
    return _no_header(), ByteVocabulary()


def digest_of(settings: EngineSettings, header: Gguf) -> str:
    """The model's digest; with options that change its numbers, and for a simulation, another one."""
    digest = model_digest(settings.model_path, header) if settings.model_path else ""
    if settings.simulate is not None:
        return sha256(f"{SCHEME}:{digest}".encode()).hexdigest()
    options = numbers_digest(settings.model, settings.context)
    return sha256(f"{digest}:{options}".encode()).hexdigest() if options else digest


def _overridden(header: Gguf, options: ModelOptions) -> Gguf:
    """The header as llama.cpp sees it with `--override-kv`."""
    metadata = dict(header.metadata)
    for key, kind, text in options.overrides:
        metadata[key] = {"int": int, "float": float}.get(kind, str)(text)
        if kind == "bool":
            metadata[key] = text == "true"
    return replace(header, metadata=metadata)


def _no_header() -> Gguf:
    return Gguf(
        metadata={"general.architecture": "simulated", "simulated.context_length": N_CTX_TRAIN},
        n_params=0,
        n_tensors=0,
        n_header_bytes=0,
        n_file_bytes=0,
    )
