"""Errors of constrained output.

GrammarError(EngineError)
├── GrammarInvalid     a grammar's text makes no sense: line and column in the message
├── PatternInvalid     a regular expression is wrong, or has parts that are not supported
├── SchemaInvalid      a JSON schema is malformed, or says what a grammar cannot express
├── GrammarTooComplex  following a grammar takes more work than one choice may cause
└── TokenRefused       a token was taken that the grammar does not allow
"""

from services.engine.errors import EngineError


class GrammarError(EngineError):
    """Base of the errors of constrained output."""


class GrammarInvalid(GrammarError):
    """A grammar cannot be used. line, column: from 1, 0 where no place is at fault."""

    def __init__(self, message: str, *, line: int = 0, column: int = 0) -> None:
        place = f"line {line}, column {column}: " if line else ""
        super().__init__(place + message)
        self.line = line
        self.column = column


class PatternInvalid(GrammarError):
    """A regular expression cannot be used."""


class SchemaInvalid(GrammarError):
    """A JSON schema cannot be used. path: JSON pointer of the part at fault, from `#`."""

    def __init__(self, message: str, path: str = "#") -> None:
        super().__init__(f"{path}: {message}")
        self.path = path


class GrammarTooComplex(GrammarError):
    """A grammar is so ambiguous that following it would hold up everybody else."""


class TokenRefused(GrammarError):
    """The grammar does not allow a token that was to be accepted, or none at all."""
