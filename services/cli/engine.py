"""`llamatape engine`: one engine alone. Loading, serving and the decoder are services.engine's."""

from services.cli import checks, downloading, lifeline, log_setup, settings
from services.cli.errors import UsageError
from services.cli.flags import Values


def run(values: Values) -> int:
    """Blocks until the engine ends; its exit code. Raises CliError."""
    if settings.is_router(values):
        raise UsageError(settings.NO_MODEL)
    lifeline.hold()
    log_setup.configure("engine", values)
    values = downloading.with_model(values, None)
    engine, bus = settings.engine_settings(values), settings.bus_settings(values)
    checks.check_model(engine.model_path, is_needed=engine.simulate is None)
    from services.engine.bootstrap import run_engine

    return run_engine(engine, bus)
