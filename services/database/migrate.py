"""Alembic, called from code: the migrations lie in the package `migrations`. Blocking: call in a thread."""

from importlib.util import find_spec

from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy.exc import SQLAlchemyError

from services.database.engine import driver_errors
from services.database.errors import DatabaseUnavailable


def config(url: str) -> Config:
    """Alembic's configuration for the database at `url` (an asynchronous driver's)."""
    spec = find_spec("migrations")
    if spec is None or not spec.submodule_search_locations:
        raise DatabaseUnavailable("the package `migrations` is not installed")
    built = Config()
    built.set_main_option("script_location", spec.submodule_search_locations[0].replace("%", "%%"))
    built.attributes["url"] = url
    return built


def upgrade(url: str, revision: str = "head") -> None:
    """Run the migrations up to `revision`, waiting for whoever runs them already. Raises DatabaseUnavailable."""
    try:
        command.upgrade(config(url), revision)
    except (CommandError, SQLAlchemyError, OSError, *driver_errors()) as error:
        raise DatabaseUnavailable(f"cannot upgrade the database: {error}") from error


def downgrade(url: str, revision: str) -> None:
    """Undo the migrations after `revision` (`base` for all). Raises DatabaseUnavailable."""
    try:
        command.downgrade(config(url), revision)
    except (CommandError, SQLAlchemyError, OSError, *driver_errors()) as error:
        raise DatabaseUnavailable(f"cannot downgrade the database: {error}") from error
