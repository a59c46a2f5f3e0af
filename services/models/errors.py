"""Errors of the models service.

ModelsError(LlamatapeError)
├── DownloadFailed   a model's file cannot be had
└── NotGguf          the file is not a GGUF model, or is damaged
"""

from schemas.errors import LlamatapeError


class ModelsError(LlamatapeError):
    """Base of the models service's errors."""


class DownloadFailed(ModelsError):
    """A model's file cannot be had; the message is one line that says why."""


class NotGguf(ModelsError):
    """The file is not a GGUF model, or is damaged."""
