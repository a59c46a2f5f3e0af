"""Errors of an engine.

    EngineError(LlamatapeError)
    ├── ModelNotLoadable   the decoder or the vocabulary cannot load the model file
    └── DecoderGone        the decoder process ended while it was needed
"""

from schemas.errors import LlamatapeError


class EngineError(LlamatapeError):
    """Base of the engine's errors."""


class ModelNotLoadable(EngineError):
    """The model file cannot be loaded."""


class DecoderGone(EngineError):
    """The decoder process ended while it was needed."""
