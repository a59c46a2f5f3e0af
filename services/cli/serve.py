"""`llamatape serve`: from flags to a running launcher, and what people read on the terminal."""

import asyncio

from services.cli import launcher, log_setup, settings
from services.cli.flags import Values

_BODY = '{"messages": [{"role": "user", "content": "Hello!"}]}'


def serve(values: Values) -> int:
    """Blocks until a signal ends it. Raises CliError where the start is impossible."""
    log_setup.configure("launcher", values)
    with launcher.prepared(values) as ground:
        asyncio.run(launcher.run(ground, lambda url: print(banner(values, url), flush=True)))
    return 0


def banner(values: Values, url: str) -> str:
    """What is served, where, and what to try."""
    folder = settings.data_dir(values)
    return "\n".join(
        [
            "",
            f"Llamatape serves {settings.model_name(values) or 'no model yet'} at {url}",
            f"Logs and data are in {folder}. Ctrl-C stops everything.",
            "Try:",
            f"  {_curl(url, has_key=bool(settings.api_keys(values)))}",
            "",
        ]
    )


def _curl(url: str, *, has_key: bool) -> str:
    at = f"--unix-socket {url[5:]} http://localhost" if url.startswith("unix:") else url
    key = " -H 'Authorization: Bearer <your key>'" if has_key else ""
    return f"curl {at}/v1/chat/completions{key} -H 'Content-Type: application/json' -d '{_BODY}'"
