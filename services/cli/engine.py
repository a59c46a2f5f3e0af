"""`llamatape engine`: one engine alone. Loading, serving and the decoder are services.engine's."""

from services import logs
from services.cli import checks, lifeline, settings
from services.cli.flags import Values


def run(values: Values) -> int:
    """Blocks until the engine ends; its exit code. Raises CliError."""
    lifeline.hold()
    engine, bus = settings.engine_settings(values), settings.bus_settings(values)
    checks.check_model(engine.model_path)
    logs.configure("engine", is_verbose=engine.is_verbose, is_json=bool(values["log_json"]))
    from services.engine.bootstrap import run_engine

    return run_engine(engine, bus)
