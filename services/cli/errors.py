"""Errors of the command line. Each message is one line that says what to do next.

CliError                      printed as `error: …`, then the process exits with `exit_code`
├── UsageError                a flag or a value that is not one (exit code 1, as llama-server)
├── StartError                something the start needs is missing or taken
└── ModelLoadError            the engine could not load the model; never retried
"""

from schemas.errors import LlamatapeError

EX_CONFIG = 78
"""Exit code of an engine that cannot load its model (sysexits.h: configuration error)."""


class CliError(LlamatapeError):
    """Ends the process with one line on stderr."""

    exit_code = 1


class UsageError(CliError):
    """A flag or a value that is not one."""


class StartError(CliError):
    """Something the start needs is missing, taken or broken."""


class ModelLoadError(CliError):
    """The engine could not load the model."""
