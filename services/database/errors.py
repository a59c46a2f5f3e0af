"""Errors of the database.

DatabaseError(LlamatapeError)
├── DatabaseUnavailable   it cannot be reached or refused the work; trying again may help
└── SchemaTooNew          a later Llamatape wrote this database
"""

from schemas.errors import LlamatapeError


class DatabaseError(LlamatapeError):
    """Base of the database's errors."""


class DatabaseUnavailable(DatabaseError):
    """The database cannot be reached or refused the work; trying again may help."""


class SchemaTooNew(DatabaseError):
    """A later Llamatape wrote this database: start that one, or use another database."""
