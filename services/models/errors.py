"""Errors of the models service.

ModelsError(LlamatapeError)
├── DatabaseUnavailable   the database cannot be reached or refused the work; trying again may help
├── SchemaTooNew          a later Llamatape wrote this database
├── DownloadFailed        a model's file cannot be had
└── NotGguf               the file is not a GGUF model, or is damaged
"""

from schemas.errors import LlamatapeError


class ModelsError(LlamatapeError):
    """Base of the models service's errors."""


class DatabaseUnavailable(ModelsError):
    """The database cannot be reached or refused the work; trying again may help."""


class SchemaTooNew(ModelsError):
    """A later Llamatape wrote this database: start that one, or use another database."""


class DownloadFailed(ModelsError):
    """A model's file cannot be had; the message is one line that says why."""


class NotGguf(ModelsError):
    """The file is not a GGUF model, or is damaged."""
