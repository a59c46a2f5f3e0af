"""Errors of an engine.

EngineError(LlamatapeError)
├── ModelNotLoadable   the decoder or the vocabulary cannot load the model file
├── TemplateUnusable   the chat template of the settings or the model does not parse
├── BadSimulation      `--simulate` says something that it cannot
└── DecoderGone        the decoder process ended while it was needed
"""

from schemas.errors import LlamatapeError


class EngineError(LlamatapeError):
    """Base of the engine's errors."""


class ModelNotLoadable(EngineError):
    """The model file cannot be loaded."""


class TemplateUnusable(EngineError):
    """The chat template cannot be parsed."""


class BadSimulation(EngineError):
    """The description of a simulated decoder makes no sense."""


class DecoderGone(EngineError):
    """The decoder process ended while it was needed."""
