"""Errors of the models service.

ModelsError(LlamatapeError)
├── DownloadFailed   a model's file cannot be had
└── KeyProblem       an order about API keys cannot be carried out
    ├── BadKey         no key can be like that
    ├── UnknownKey     there is no such key
    └── AmbiguousKey   several keys have that name
"""

from schemas.errors import LlamatapeError


class ModelsError(LlamatapeError):
    """Base of the models service's errors."""


class DownloadFailed(ModelsError):
    """A model's file cannot be had; the message is one line that says why."""


class KeyProblem(ModelsError):
    """An order about API keys cannot be carried out."""


class BadKey(KeyProblem):
    """No key can be like that."""


class UnknownKey(KeyProblem):
    """There is no such key."""


class AmbiguousKey(KeyProblem):
    """Several keys have that name."""
