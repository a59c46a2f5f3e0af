"""What every table derives from: one registry of tables, with names for constraints."""

from sqlalchemy import MetaData
from sqlalchemy.orm import DeclarativeBase

NAMES = {
    "ix": "ix_%(table_name)s_%(column_0_name)s",
    "uq": "uq_%(table_name)s_%(column_0_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}
"""Constraints have names, because SQLite can only alter what has one."""


class Base(DeclarativeBase):
    """The registry of tables; `metadata` is what migrations are compared with."""

    metadata = MetaData(naming_convention=NAMES)
