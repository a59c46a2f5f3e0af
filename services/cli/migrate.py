"""`llamatape migrate`: bring the database up to date and end. For deployments that do it once, first."""

import asyncio

from services.cli import log_setup, settings
from services.cli.flags import Values

PATIENCE_S = 60.0


def run(values: Values) -> int:
    """Blocks until it is done; a database that is not there yet has a minute. Raises LlamatapeError."""
    log_setup.configure("migrate", values)
    from services.database.opening import migrate

    asyncio.run(migrate(settings.database_url(values), PATIENCE_S))
    return 0
