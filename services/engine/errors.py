"""Errors of an engine.

EngineError(LlamatapeError)
├── ModelNotLoadable   the decoder or the vocabulary cannot load the model file
├── TemplateUnusable   the chat template of the settings or the model does not parse
├── BadSimulation      `--simulate` says something that it cannot
├── SlotFileError      a slot cannot be written to a file, or read from one
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


class SlotFileError(EngineError):
    """A slot cannot be saved or restored; says why."""


class DecoderGone(EngineError):
    """The decoder process ended while it was needed."""
